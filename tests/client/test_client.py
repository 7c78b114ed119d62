"""The client and `rpmctl`, against a real server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer
from typer.main import get_command
from typer.testing import CliRunner

from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.allocation.services import run_pass
from apps.policies.models import Pool
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import Attempt, AttemptLog, Task
from rpm_client import Client, RefusedError, UnreachableError
from rpm_client.cli.app import app
from rpm_client.cli.details import _expected
from rpm_client.cli.installation import _use
from tests.allocation.state import enqueue, make_node
from tests.client.conftest import ctl
from tests.people import Example

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_task_is_enqueued_listed_shown_and_aborted(
    access: dict[str, str], example: Example
) -> None:
    queue = example.dev_queue.name
    made = ctl(access, "enqueue", "-q", queue, "-e", "A=b=c", "-t", "night", "--", "sh", "-c", "ls")
    task_id = made.stdout.strip()

    listed = ctl(access, "list", "--state", "queued", "-t", "night").stdout.splitlines()
    shown = json.loads(ctl(access, "show", task_id, "--json").stdout)
    aborted = ctl(access, "abort", task_id)

    assert [line.split("\t")[:4] for line in listed] == [[task_id, "sh -c ls", "queued", queue]]
    assert (shown["command"], shown["environment"]) == (["sh", "-c", "ls"], {"A": "b=c"})
    assert shown["waits"]["position"] == 1
    assert (aborted.exit_code, aborted.stdout.strip()) == (0, "aborted")


def test_a_waiting_task_gets_another_priority_and_queue_and_leaves_it(
    access: dict[str, str], example: Example
) -> None:
    queue = example.dev_queue.name
    task_id = ctl(access, "enqueue", "-q", queue, "--", "true").stdout.strip()

    raised = ctl(access, "priority", task_id, "-2")
    moved = ctl(access, "move", task_id, queue)
    held = ctl(access, "hold", task_id)
    said = ctl(access, "explain", task_id).stdout
    ctl(access, "release", task_id)
    dequeued = ctl(access, "dequeue", task_id)
    explained = ctl(access, "explain", task_id)
    resumed = ctl(access, "resume", task_id)
    enqueued = ctl(access, "enqueue-draft", task_id, queue)
    ctl(access, "abort", task_id)
    again = ctl(access, "again", task_id, "--queue", queue)

    assert [one.stdout for one in (raised, dequeued, enqueued, again)] == [
        "-2\n",
        "draft\n",
        "queued\n",
        "queued\n",
    ]
    assert f"{queue} is where true waits already" in str(moved.exception)
    assert (held.stdout, said.splitlines()[0]) == ("queued\n", "Its owner put it on hold.")
    assert explained.stdout.startswith("It does not wait: its state is draft.\n")
    assert "enqueue a draft instead" in str(resumed.exception)


def test_every_command_and_each_of_its_options_has_a_help_text() -> None:
    def without(command: Any, path: str) -> Iterator[str]:
        if not command.help:
            yield path
        for parameter in command.params:
            if not getattr(parameter, "help", "-"):
                yield f"{path} {parameter.name}"
        for name, inner in getattr(command, "commands", {}).items():
            yield from without(inner, f"{path} {name}")

    assert list(without(get_command(app), "rpmctl")) == []


def test_a_dry_run_says_why_it_would_wait_and_enqueues_nothing(
    access: dict[str, str], example: Example
) -> None:
    words = ("enqueue", "--dry-run", "-q", example.dev_queue.name, "--", "true")

    waits = ctl(access, *words).stdout
    make_node(example.bare_metal, name="b1")
    runs = ctl(access, *words).stdout

    assert waits.startswith("Nothing serves")
    assert waits.splitlines()[-1] == "Waiting tasks of its queue before it: 0"
    assert runs == "It would start now in your first pool (reserved).\n"
    assert not Task.objects.exists()


def test_a_task_is_explained_in_sentences(access: dict[str, str], example: Example) -> None:
    task_id = ctl(access, "enqueue", "-q", example.dev_queue.name, "--", "true").stdout.strip()
    new = ctl(access, "explain", task_id).stdout
    run_pass()

    output = ctl(access, "explain", task_id).stdout.splitlines()

    assert new.startswith("No pass has seen it yet.\nPosition in its queue: 1\nExpected start: ")
    assert output[0].startswith("Nothing serves")
    assert output[2] == "Position in its queue: 1"
    assert output[3] == "Expected start: No start is in sight: see why it waits."
    assert "no_server: Nothing serves" in output[4]


def test_an_expected_start_is_printed_as_an_estimate() -> None:
    expected = {
        "earliest": "2026-11-21T14:10:33.5Z",
        "latest": None,
        "basis": "time_limit",
        "sentence": "Estimated from the time limits of the tasks before it.",
    }

    output = _expected({"expected_start": expected, "no_estimate": ""})

    assert output == (
        "probably after 2026-11-21 14:10 UTC, it is unknown how long after (an estimate). "
        "Estimated from the time limits of the tasks before it."
    )
    now = _expected({"expected_start": {**expected, "basis": "now"}, "no_estimate": ""})
    assert now == "with the next pass, within seconds (an estimate)."


def test_an_administrator_looks_ahead(
    live_server: LiveServer, root: User, access: dict[str, str], example: Example
) -> None:
    credential, secret = credential_create(user=root, label="test")
    ctl(access, "enqueue", "-q", example.dev_queue.name, "--", "true")

    seen = ctl({**access, "RPM_KEY": credential.key, "RPM_SECRET": secret}, "preview").stdout
    refused = ctl(access, "preview")

    assert "     0  tasks would start\n" in seen
    assert "     1  would still wait\n" in seen
    assert f"1 of {example.dev_queue.name}: Nothing serves" in seen
    assert refused.exit_code == 1
    # Only policies for which something changes have a line.
    assert "Dev: " not in seen


def test_what_changes_for_a_policy_is_one_line() -> None:
    before = {"running": 1, "waiting": 2, "reserved": {"gpu": "4"}, "over_quota": {}}

    assert _use(before) == "1 running, 2 waiting, 4 gpu reserved, nothing over quota"
    assert _use(None) == "not there"


def test_queues_are_listed(access: dict[str, str], example: Example) -> None:
    line = ctl(access, "queues").stdout.strip().split("\t")

    queue = [str(example.dev_queue.pk), example.dev_queue.name, "Dev", "4xGPU"]
    assert line == [*queue, "0", "0", "-"]


def test_the_status_and_the_usage_are_tables(
    access: dict[str, str], example: Example, alice: User, root: User
) -> None:
    make_node(example.bare_metal, name="b1", gpus=4)
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    credential, secret = credential_create(user=root, label="test")

    all_of_it = access | {"RPM_KEY": credential.key, "RPM_SECRET": secret}
    status = ctl(all_of_it, "status").stdout.splitlines()
    usage = ctl(access, "usage", "--by", "owner")
    wrong = ctl(access, "usage", "--by", "moon")

    assert f"pool {example.bare_metal.name}\t4\t\t8\t\t\t\t\t" in status
    assert next(one for one in status if one.startswith("policy Dev\t4\t")).split("\t")[4:6] == [
        "1",
        "1",
    ]
    assert usage.stdout.splitlines()[0].endswith(", by owner")
    assert [one.split("\t")[0] for one in usage.stdout.splitlines()[1:]] == ["alice", "total"]
    assert (wrong.exit_code, wrong.stdout) == (1, "")


def test_what_the_server_refuses_is_raised_with_its_fields(
    client: Client, access: dict[str, str], example: Example
) -> None:
    with pytest.raises(RefusedError) as refused:
        client.task_submit(
            {"name": "x", "image": "a", "queue": example.dev_queue.name, "replicas": 99}
        )

    assert (refused.value.status, refused.value.code) == (422, "never_fits")
    assert list(refused.value.fields) == ["request.gpu"]
    with (
        pytest.raises(RefusedError, match="wrong"),
        Client(access["RPM_URL"], key="nobody", secret="x") as unknown,
    ):
        next(unknown.tasks())


def test_pages_are_read_to_the_end(client: Client, example: Example) -> None:
    made = {client.task_submit({"name": f"t{number}"})["id"] for number in range(5)}

    assert {task["id"] for task in client.tasks(limit=2)} == made


def test_a_log_is_followed_until_the_task_ends(client: Client, example: Example) -> None:
    task_id = client.task_submit({"name": "draft"})["id"]
    attempt = Attempt.objects.create(
        task_id=task_id,
        generation=1,
        queue=example.dev_queue,
        policy=example.dev,
        pool=Pool.objects.get(pk=example.h100.pk),
        allocated_at=timezone.now(),
    )
    written = "größe\n".encode()

    def write(start: int, end: int) -> None:
        AttemptLog.objects.create(
            attempt=attempt, offset=start, at=timezone.now(), data=written[start:end]
        )

    # The cut goes through a character of two bytes.
    write(0, 3)
    parts = client.log_follow(task_id, every_s=0.01)
    first = next(parts)
    write(3, len(written))
    Task.objects.filter(pk=task_id).update(state=TaskState.ABORTED)

    assert first == "gr"
    assert first + "".join(parts) == written.decode()


def test_another_attempt_is_followed_from_its_beginning(client: Client, example: Example) -> None:
    task_id = client.task_submit({"name": "draft"})["id"]

    def attempt(generation: int, written: bytes) -> None:
        made = Attempt.objects.create(
            task_id=task_id,
            generation=generation,
            queue=example.dev_queue,
            policy=example.dev,
            pool=Pool.objects.get(pk=example.h100.pk),
            allocated_at=timezone.now(),
        )
        AttemptLog.objects.create(attempt=made, offset=0, at=timezone.now(), data=written)

    attempt(1, b"first, and long")
    parts = client.log_follow(task_id, every_s=0.01)
    first = next(parts)
    Attempt.objects.update(state=AttemptState.FINISHED)
    attempt(2, b"again")
    Task.objects.filter(pk=task_id).update(state=TaskState.ABORTED)

    assert (first, "".join(parts)) == ("first, and long", "again")


def test_an_id_leads_to_no_other_address(client: Client) -> None:
    with pytest.raises(RefusedError) as refused:
        client.task("../queues")

    assert refused.value.status == 404


def test_a_server_that_does_not_answer_is_asked_again_and_then_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("rpm_client.client.sleep", pauses.append)

    with Client("http://127.0.0.1:1", key="k", secret="s") as client:
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
            client.task_submit({"name": "x"})
        assert pauses == [0.5, 1.0, 2.0]
        with pytest.raises(UnreachableError):
            client.task_do("x", "abort")

    assert pauses == [0.5, 1.0, 2.0]


def test_a_token_stands_for_the_credential(access: dict[str, str], example: Example) -> None:
    token = ctl(access, "token").stdout.strip()
    narrow = ctl(access, "token", "--scope", "read").stdout.strip()
    url = access["RPM_URL"]
    words = ("enqueue", "-q", example.dev_queue.name, "--", "true")

    assert ctl({"RPM_URL": url, "RPM_TOKEN": token}, *words).exit_code == 0
    assert ctl({"RPM_URL": url, "RPM_TOKEN": narrow}, "list").exit_code == 0
    assert ctl({"RPM_URL": url, "RPM_TOKEN": narrow}, *words).exit_code == 1
    nothing = ctl({"RPM_URL": url}, "list")
    assert nothing.exit_code == 2


def test_help_needs_no_server_and_a_command_says_what_is_missing() -> None:
    none = {"RPM_URL": "", "RPM_KEY": "", "RPM_SECRET": "", "RPM_TOKEN": ""}

    helped = CliRunner().invoke(app, ["enqueue", "--help"], env=none)
    nowhere = CliRunner().invoke(app, ["queues"], env=none)
    nobody = CliRunner().invoke(app, ["queues"], env={**none, "RPM_URL": "http://127.0.0.1:1"})

    assert helped.exit_code == 0
    assert nowhere.exit_code == nobody.exit_code == 2
    assert "set RPM_URL" in nowhere.output
    assert "set RPM_KEY and RPM_SECRET" in nobody.output
