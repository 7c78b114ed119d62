"""`rpmctl exec` and `shell` into running tasks: real server, sshd and podman."""

import json
import os
import pty
import subprocess
import threading
from contextlib import suppress
from typing import Any

import pytest
from django.db import OperationalError
from pytest_django import Settings
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from apps.accounts.models import Credential, Scope, User
from apps.accounts.services import throttling
from apps.accounts.services.credentials import credential_revoke
from apps.dashboard import stream_socket
from apps.dashboard.consumers import BAD_MESSAGE, PERMISSIONS_CHANGED
from apps.events.models import AuditEntry
from rpm_client.streams import ERRORS, INPUT, OUTPUT
from tests.end_to_end.running_task import WITHIN_S, RunningTask
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_command_and_a_shell_in_a_container(contained: RunningTask, alice: User) -> None:
    content = os.urandom(1024 * 1024)
    task_id = str(contained.task.pk)

    words, environment = contained.command(
        alice, "exec", task_id, "--", "sh", "-c", 'cat; echo "$0" >&2; exit 7', "a $(b)"
    )
    done = subprocess.run(
        words,
        env=environment,
        input=content,
        capture_output=True,
        check=False,
        timeout=scale_timeout(WITHIN_S),
    )
    assert (done.returncode, done.stderr) == (7, b"a $(b)\n")
    assert done.stdout == content

    words, environment = contained.command(alice, "shell", task_id)
    assert _typed(words, environment, b"echo $((20 + 3)); exit 5\n") == (5, True)
    kinds = AuditEntry.objects.filter(verb="stream.ended").order_by("pk")
    found = [(entry.details["kind"], entry.actor) for entry in kinds]
    assert found == [("exec", alice.username), ("shell", alice.username)]
    first = kinds[0].details
    assert (first["received_bytes"], first["sent_bytes"]) == (len(content), len(content) + 7)
    assert "cat" not in json.dumps([entry.details for entry in AuditEntry.objects.all()])


def _typed(words: list[str], environment: dict[str, str], keys: bytes) -> tuple[int, bool]:
    """The exit code of a program in a terminal, and whether it said `23`."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        words, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    late = threading.Timer(scale_timeout(WITHIN_S), process.kill)
    late.start()
    os.close(theirs)
    os.write(ours, keys)
    said = b""
    # The end of its last process is an error of the terminal.
    with suppress(OSError):
        while content := os.read(ours, 1000):
            said += content
    code = process.wait()
    late.cancel()
    os.close(ours)
    return code, b"23\r\n" in said


def _say(socket: ClientConnection, **wanted: object) -> dict[str, Any]:
    # One that has closed already said why.
    with suppress(ConnectionClosed):
        socket.send(json.dumps(wanted))
    answer: dict[str, Any] = json.loads(socket.recv(timeout=scale_timeout(WITHIN_S)))
    return answer


def _code_of_close(socket: ClientConnection) -> int:
    try:
        while True:
            socket.recv(timeout=scale_timeout(WITHIN_S))
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else 0


def test_only_the_owner_and_managers_have_streams(
    process: RunningTask, alice: User, bob: User, charlie: User, root: User
) -> None:
    found = {}
    for user in (alice, bob, charlie, root):
        with process.socket(user) as socket:
            found[user.username] = _say(socket, kind="exec", command=["true"]).get("code", "open")
    # As in REST: the scope enqueue is for own tasks.
    with process.socket(root, Scope.ADMINISTER) as socket:
        administering = _say(socket, kind="exec", command=["true"]).get("code", "open")
    with process.socket(alice, Scope.READ) as reading:
        words = json.loads(reading.recv(timeout=scale_timeout(WITHIN_S)))
        closed = _code_of_close(reading)

    want = {"alice": "open", "bob": "forbidden", "charlie": "not_found", "root": "forbidden"}
    assert (found, administering) == (want, "open")
    assert (words["code"], closed) == ("forbidden", PERMISSIONS_CHANGED)
    opened = AuditEntry.objects.filter(verb="stream.opened").values_list("actor", flat=True)
    assert sorted(opened) == ["alice", "root"]


def test_what_is_taken_away_closes_the_stream(process: RunningTask, alice: User) -> None:
    with process.socket(alice) as socket:
        assert _say(socket, kind="exec", command=["cat"])["type"] == "open"
        socket.send(bytes([INPUT]) + b"echo")
        assert socket.recv(timeout=scale_timeout(WITHIN_S)) == bytes([OUTPUT]) + b"echo"

        credential_revoke(credential=Credential.objects.get(), actor=alice, is_admin=False)

        assert _code_of_close(socket) == PERMISSIONS_CHANGED
    assert AuditEntry.objects.filter(verb="stream.ended").count() == 1


def test_a_role_that_is_taken_away_closes_the_stream(process: RunningTask, root: User) -> None:
    with process.socket(root, Scope.ADMINISTER) as socket:
        assert _say(socket, kind="exec", command=["cat"])["type"] == "open"

        root.groups.clear()

        assert _code_of_close(socket) == PERMISSIONS_CHANGED


def test_a_stream_that_nobody_asks_for_properly_is_refused(
    process: RunningTask, alice: User, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process.socket(alice) as socket:
        assert _say(socket, kind="root")["code"] == "invalid"
    with process.socket(alice) as socket:
        assert _say(socket, kind="exec")["code"] == "invalid"
    settings.STREAMS = False
    with process.socket(alice) as socket:
        assert _say(socket, kind="shell")["code"] == "conflict"
    settings.STREAMS = True
    with process.socket(alice) as socket:
        _say(socket, kind="exec", command=["sh", "-c", "echo bad >&2; exec cat"])
        assert socket.recv(timeout=scale_timeout(WITHIN_S)) == bytes([ERRORS]) + b"bad\n"
        for key, words in stream_socket._WORDS.items():
            with monkeypatch.context() as patch:
                patch.setitem(stream_socket._MOST, key, 1)
                with process.socket(alice) as second:
                    answer = _say(second, kind="exec", command=["true"])
            assert answer["detail"] == f"There are 1 streams {words} already."
        socket.send(bytes([OUTPUT]) + b"echo")
        assert _code_of_close(socket) == BAD_MESSAGE


@pytest.mark.usefixtures("one_long_minute")
def test_a_person_takes_neither_all_places_of_a_node_nor_opens_without_end(
    process: RunningTask, alice: User, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = stream_socket._MOST
    assert most["person on node"] * 4 <= most["node"]
    monkeypatch.setitem(most, "person on node", 1)
    with process.socket(alice) as socket:
        assert _say(socket, kind="exec", command=["cat"])["type"] == "open"
        with process.socket(alice) as second:
            answer = _say(second, kind="exec", command=["true"])
        with process.socket(root, Scope.ADMINISTER) as third:
            other = _say(third, kind="exec", command=["true"])["type"]

    assert (answer["detail"], other) == (
        "There are 1 streams of yours to its node already.",
        "open",
    )

    monkeypatch.setattr(throttling, "STREAMS_A_MINUTE", 1)
    with process.socket(alice) as socket:
        refused = _say(socket, kind="exec", command=["true"])
    assert refused["detail"] == "You opened more than 1 streams in a minute."


@pytest.mark.parametrize("switch", ["queue", "profile"])
def test_streams_that_are_switched_off_end(process: RunningTask, alice: User, switch: str) -> None:
    queue = process.task.queue
    assert queue is not None
    with process.socket(alice) as socket:
        assert _say(socket, kind="exec", command=["cat"])["type"] == "open"

        changed = queue if switch == "queue" else queue.profile
        type(changed)._default_manager.filter(pk=changed.pk).update(allow_streams=False)

        assert _code_of_close(socket) == PERMISSIONS_CHANGED
    with process.socket(alice) as socket:
        refused = _say(socket, kind="exec", command=["true"])
    want = {"queue": f"Queue {queue.name} has", "profile": f"Profile {queue.profile.name} has"}
    assert want[switch] in refused["detail"]


@pytest.mark.parametrize("is_hanging", [True, False])
def test_a_database_that_is_away_ends_streams_with_words(
    process: RunningTask, alice: User, monkeypatch: pytest.MonkeyPatch, is_hanging: bool
) -> None:
    back = threading.Event()

    def away(_: object) -> bool:
        if is_hanging:
            back.wait()
        raise OperationalError("the connection is closed")

    monkeypatch.setattr(stream_socket, "UNCHECKED_S", 3.0)
    if is_hanging:
        # The thread that would record its end hangs, too.
        monkeypatch.setattr(stream_socket, "RECORD_S", 1.0)
    monkeypatch.setattr(stream_socket, "stream_holds", away)
    try:
        with process.socket(alice) as socket:
            assert _say(socket, kind="exec", command=["cat"])["type"] == "open"

            said = json.loads(socket.recv(timeout=scale_timeout(WITHIN_S)))
            # The one thread of the database goes on once it is back.
            back.set()

            assert (said["type"], _code_of_close(socket)) == ("cut", stream_socket.CUT)
            assert said["detail"] == stream_socket.DATABASE_AWAY
    finally:
        back.set()
    if not is_hanging:
        assert AuditEntry.objects.filter(verb="stream.ended").exists()
