"""Images from a registry that asks for a password, through a real sshd and a real podman."""

import base64
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from apps.execution.node import private_files, pull
from apps.execution.protocol.answers import PullAnswer
from apps.execution.protocol.outcomes import Answered, NodeRefusal
from apps.execution.protocol.requests import PullRequest, RegistryLogin
from tests.execution.nodes import INSTALLATION, TestedNode, installed_ssh, member_of
from tests.services.podman import PodmanStore
from tests.services.ports import wait_until
from tests.services.registry import Registry, running_registry
from tests.services.sshd import SshdNode
from tools.packages import find_program

PASSWORD = "s3cret pass"
BASIC = base64.b64encode(f"robot:{PASSWORD}".encode()).decode()
# Records its arguments and what is in the file that they name, then does as podman does.
RECORDING = """\
#!/bin/sh
tr '\\0' '\\n' < /proc/$$/cmdline >> {records}/argv
tr '\\0' '\\n' < /proc/$$/environ >> {records}/environ
for word in "$@"; do
  case "$word" in --authfile=*)
    cat "${{word#--authfile=}}" > {records}/authfile
    stat -c '%a %F' "${{word#--authfile=}}" "$(dirname "${{word#--authfile=}}")" \\
        > {records}/modes ;;
  esac
done
exec {podman} "$@"
"""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as registry:
        registry.people = {"robot": PASSWORD}
        yield registry


@pytest.fixture
def records(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    return folder


@pytest.fixture
def node(
    ssh_node: SshdNode, podman: PodmanStore, registry: Registry, tmp_path: Path, records: Path
) -> Iterator[TestedNode]:
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text(RECORDING.format(records=records, podman=find_program("podman")))
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    node = installed_ssh(ssh_node, podman.environment | registry.environment(tmp_path) | path)
    yield node
    node.client.transport.close()
    podman.run("rmi", "--force", *images_of(podman, registry.host))


def pulled(node: TestedNode, image: str, **changes: object) -> PullAnswer:
    """Ask until the image is there, or is not to be had."""
    fields: dict[str, object] = {"runtime": "podman", "image": image, "wait_s": 20}
    while True:
        request = PullRequest(installation=INSTALLATION, **(fields | changes))  # type: ignore[arg-type]  # the helper checks each field
        outcome = node.client.pull(request)
        assert isinstance(outcome, Answered), outcome
        if outcome.answer.state != "pulling":
            return outcome.answer


def login(registry: Registry, password: str = PASSWORD, revision: str = "1.1") -> RegistryLogin:
    return RegistryLogin(registry.host, "robot", password, revision)


def traces(folder: Path) -> list[str]:
    """Files below the folder in which the password stands, in clear or as it is sent."""
    needles = [one.encode() for one in (PASSWORD, BASIC)]
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and any(one in path.read_bytes() for one in needles)
    ]


def private_place(server: SshdNode) -> Path:
    return Path(private_files.private_root(server.home, {"installation": INSTALLATION}))


def test_a_password_opens_a_registry_and_is_found_nowhere_afterwards(
    node: TestedNode, ssh_node: SshdNode, registry: Registry, records: Path
) -> None:
    digest = registry.push("team/train", "1", word="one")
    image = f"{registry.host}/team/train:1"

    without = pulled(node, image)
    answer = pulled(node, image, login=login(registry))

    assert without.state == "failed"
    assert "unauthorized" in without.progress
    assert (answer.state, answer.digest) == ("present", digest)
    assert ("robot", f"/v2/team/train/manifests/{digest}") in registry.asked or (
        "robot",
        "/v2/team/train/manifests/1",
    ) in registry.asked
    # The runtime read it from a file of its own, in memory, and from nowhere else.
    assert BASIC in (records / "authfile").read_text()
    assert (records / "modes").read_text() == "600 regular file\n700 directory\n"
    (records / "authfile").unlink()
    assert traces(records) == []
    assert traces(Path(ssh_node.home)) == []
    place = private_place(ssh_node)
    assert str(place).startswith(private_files.CANDIDATES)
    assert traces(place) == []
    assert list((place / "logins").iterdir()) == []


def test_what_a_registry_repeats_of_a_password_is_masked(
    node: TestedNode, ssh_node: SshdNode, registry: Registry
) -> None:
    registry.push("team/train", "1", word="one")
    registry.people = {"robot": "another"}

    answer = pulled(node, f"{registry.host}/team/train:1", login=login(registry))

    assert answer.state == "failed"
    assert "you sent Basic ********" in answer.progress
    assert traces(Path(ssh_node.home)) == []


def test_what_one_group_fetched_is_not_for_another(node: TestedNode, registry: Registry) -> None:
    registry.push("team/train", "1", word="one")
    image = f"{registry.host}/team/train:1"
    assert pulled(node, image, login=login(registry)).state == "present"

    assert pulled(node, image, always=True).state == "failed"
    wrong = login(registry, "wrong", revision="2.1")
    assert pulled(node, image, always=True, login=wrong).state == "failed"
    assert pulled(node, image, always=True, login=login(registry)).state == "present"


def test_a_pull_is_polled_to_its_own_end_and_not_made_again(
    node: TestedNode, registry: Registry, records: Path
) -> None:
    wrong = login(registry, password="wrong")
    request = PullRequest(
        installation=INSTALLATION,
        runtime="podman",
        image=f"{registry.host}/private/tool:1",
        login=wrong,
        always=True,
    )
    first = node.client.pull(request)
    assert isinstance(first, Answered)
    assert first.answer.state == "pulling"
    assert first.answer.pull_id
    poll = msgspec.structs.replace(request, pull_id=first.answer.pull_id)

    def state() -> str:
        outcome = node.client.pull(poll)
        assert isinstance(outcome, Answered)
        return outcome.answer.state

    wait_until(lambda: state() == "failed", what="the pull has failed")

    assert state() == "failed"
    assert (records / "argv").read_text().splitlines().count("pull") == 1
    again = node.client.pull(request)
    assert isinstance(again, Answered)
    assert again.answer.pull_id not in ("", first.answer.pull_id)


def test_a_password_is_removed_even_if_whoever_fetches_is_killed(
    node: TestedNode, ssh_node: SshdNode, registry: Registry
) -> None:
    registry.push("team/train", "1", word="one")
    registry.is_open.clear()
    request = PullRequest(
        installation=INSTALLATION,
        runtime="podman",
        image=f"{registry.host}/team/train:1",
        login=login(registry),
        wait_s=0,
    )
    node.client.pull(request)
    logins = private_place(ssh_node) / "logins"
    wait_until(lambda: bool(list(logins.glob("*/config.json"))), what="the password is there")
    (pull,) = logins.iterdir()
    lock = Path(ssh_node.home) / "pulls" / pull.name / "lock"

    for pid in holders_of(lock):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not holders_of(lock), what="the puller is gone")
    assert list(logins.iterdir()) == [pull]
    node.sync()

    assert list(logins.iterdir()) == []


def test_a_login_that_will_not_do_is_refused_without_its_words(
    node: TestedNode, registry: Registry
) -> None:
    for bad in (
        RegistryLogin(registry.host, "ro:bot", PASSWORD, "1.1"),
        RegistryLogin(registry.host, "robot", f"{PASSWORD}\n", "1.1"),
    ):
        request = PullRequest(
            installation=INSTALLATION, runtime="podman", image="a.b/c:1", login=bad, wait_s=1
        )
        outcome = node.client.pull(request)
        assert isinstance(outcome, NodeRefusal)
        assert outcome.code == "invalid"
        assert PASSWORD not in outcome.detail


@pytest.mark.parametrize("is_list", [False, True])
def test_what_was_resolved_is_launched_wherever_the_tag_goes(
    node: TestedNode, podman: PodmanStore, registry: Registry, *, is_list: bool
) -> None:
    # Words of its own: podman knows an image that it has seen before by its first digest.
    words = [f"one {is_list}", f"two {is_list}"]
    digest = registry.push("team/train", "1", word=words[0], is_list=is_list)
    image = f"{registry.host}/team/train:1"
    first = pulled(node, image, login=login(registry))
    newer = registry.push("team/train", "1", word=words[1], is_list=is_list)
    podman.run("rmi", image)
    second = pulled(node, image, login=login(registry))
    again = pulled(node, image, digest=digest, login=login(registry))

    assert (first.digest, second.digest) == (digest, newer)
    assert (again.digest, again.image_id) == (first.digest, first.image_id)
    for answer, want in zip((first, second), words, strict=True):
        request = node.launch_request(
            "cat",
            "/word",
            runtime="podman",
            image=image,
            digest=answer.digest,
            image_id=answer.image_id,
            allow_process=False,
            uid=12345,
            gid=12345,
        )
        assert isinstance(node.client.launch(request), Answered)
        assert node.wait_for_exit(member_of(request)).exit_code == 0
        assert node.logs[member_of(request)].decode() == want


def test_an_image_that_was_never_in_a_registry_has_a_number(
    node: TestedNode, podman: PodmanStore
) -> None:
    answer = pulled(node, podman.image)

    assert answer.state == "present"
    listed = podman.run("image", "inspect", "--format={{.Id}}", "--", podman.image)
    assert answer.image_id == f"sha256:{listed.stdout.decode().strip()}"


def test_only_images_that_came_are_recorded(
    node: TestedNode, podman: PodmanStore, ssh_node: SshdNode, registry: Registry
) -> None:
    registry.push("team/train", "1", word="one")
    there, missing = f"{registry.host}/team/train:1", f"{registry.host}/team/none:1"

    states = [pulled(node, image, login=login(registry)).state for image in (there, missing)]
    node.client.launch(
        node.launch_request(
            "true", runtime="podman", image=missing, allow_process=False, uid=1, gid=1
        )
    )

    assert states == ["present", "failed"]
    records = Path(ssh_node.home, "images").iterdir()
    assert [json.loads(path.read_text())["image"] for path in records] == [there]


def images_of(podman: PodmanStore, host: str) -> set[str]:
    """Numbers of what came from there."""
    listed = podman.run("images", "--all", "--no-trunc", "--format={{.ID}} {{.Repository}}")
    rows = (row.split() for row in listed.stdout.decode().splitlines())
    return {number for number, repository in rows if repository.startswith(host)}


def holders_of(path: Path) -> set[int]:
    """Processes that have this file open."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == path:
                found.add(int(link.parts[2]))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (f"Copying blob sha256:{'0a' * 32}\n", "Copying blob ...\n"),
        ("a3ed95caeb02: Pull complete\n", "...: Pull complete\n"),
        (f"{'0a' * 32}\n" * 100, "...\n" * 100),
        ("Error: reading team/train:1: unauthorized\n",) * 2,
    ],
    ids=["podman", "docker", "many", "other words"],
)
def test_what_is_shown_of_a_pull_holds_no_digests_of_layers(
    tmp_path: Path, words: str, want: str
) -> None:
    (tmp_path / "log").write_text(words)

    assert pull._progress(str(tmp_path)) == want
