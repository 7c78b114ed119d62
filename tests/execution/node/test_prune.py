"""Nodes keep for years only what is needed."""

import json
import os
import time
from pathlib import Path

import pytest

from apps.execution.node.prune import note_image
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import EndedTask, ForgetRequest, PullRequest
from tests.execution.node.test_containers import container, name_of
from tests.execution.nodes import (
    INSTALLATION,
    PruneAnswer,
    TestedNode,
    installed_local,
    installed_ssh,
    member_of,
)
from tests.services.podman import PodmanStore
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode


@pytest.fixture
def node(ssh_node: SshdNode, podman: PodmanStore) -> TestedNode:
    """An sshd node with podman."""
    return installed_ssh(ssh_node, podman.environment)


def make_container(podman: PodmanStore, name: str, home: str, *command: str) -> None:
    """A container that looks like one of ours."""
    labels = [f"--label=rpm.installation={INSTALLATION}", f"--label=rpm.home={home}"]
    verb = ["run", "--detach"] if command else ["create"]
    done = podman.run(*verb, f"--name={name}", *labels, podman.image, *(command or ("true",)))
    assert done.returncode == 0, done.stderr


def test_dead_containers_that_nobody_knows_are_removed_and_no_others(
    node: TestedNode, podman: PodmanStore, ssh_node: SshdNode
) -> None:
    request = container(node, podman, "sleep", "60")
    node.client.launch(request)
    dead, running = (f"rpm-{INSTALLATION}-{name}-1-0" for name in ("dead", "runs"))
    elsewhere, foreign = f"rpm-{INSTALLATION}-elsewhere-1-0", "somebody-elses"
    make_container(podman, dead, ssh_node.home)
    make_container(podman, running, ssh_node.home, "sleep", "60")
    make_container(podman, elsewhere, "/another/home")
    make_container(podman, foreign, ssh_node.home)

    answer = node.prune()

    assert answer == PruneAnswer((dead,), ())
    assert {name_of(request), running, elsewhere, foreign} <= podman.names()
    podman.run("rm", "--force", "--time=0", running, elsewhere, foreign)
    node.stop(member_of(request), grace_s=0)
    node.wait_for_exit(member_of(request))


def test_images_go_only_when_asked_and_unused_for_long(
    node: TestedNode, podman: PodmanStore, ssh_node: SshdNode
) -> None:
    old, young = "localhost/rpm-test-old:1", "localhost/rpm-test-young:1"
    for image in (old, young):
        podman.run("tag", podman.image, image)
        node.client.pull(PullRequest(installation=INSTALLATION, runtime="podman", image=image))
    request = container(node, podman, "sleep", "60")
    node.client.launch(request)
    for path in Path(ssh_node.home, "images").iterdir():
        if young not in path.read_text():
            os.utime(path, (time.time() - 10 * 86_400,) * 2)

    unasked = node.prune()
    after = node.prune(images_unused_days=7)

    assert unasked.images == ()
    # The image of the running task is as old by its file, and is kept.
    assert after.images == (old,)
    images = podman.run("images", "--format={{.Repository}}:{{.Tag}}").stdout.decode().split()
    assert old not in images
    assert {young, podman.image} <= set(images)
    node.stop(member_of(request), grace_s=0)
    node.wait_for_exit(member_of(request))
    podman.run("untag", podman.image, young)


def test_a_short_name_that_an_earlier_helper_noted_removes_nobodys_image(
    node: TestedNode, podman: PodmanStore, ssh_node: SshdNode
) -> None:
    private = "registry.teamb.example/private/model:1"
    podman.run("tag", podman.image, private)
    note_image(ssh_node.home, "podman", "private/model:1")
    for path in Path(ssh_node.home, "images").iterdir():
        os.utime(path, (time.time() - 10 * 86_400,) * 2)

    after = node.prune(images_unused_days=7)

    assert after.images == ()
    assert podman.run("untag", podman.image, private).returncode == 0
    assert list(Path(ssh_node.home, "images").iterdir()) == []


def test_earlier_helpers_and_old_pulls_go_and_the_helper_in_use_stays(tmp_path: Path) -> None:
    home = tmp_path / "home"
    node = installed_local(str(home))
    for name in ("helper-0000", "pulls/aaaa"):
        (home / name).mkdir(parents=True)
    long_ago = time.time() - 60 * 86_400
    for path in (*home.glob("helper-*"), home / "pulls" / "aaaa"):
        os.utime(path, (long_ago, long_ago))

    node.prune()

    assert not (home / "helper-0000").exists()
    assert not (home / "pulls" / "aaaa").exists()
    assert node.probe().answer.hostname


def test_failed_pulls_go_after_a_day_and_others_later(tmp_path: Path) -> None:
    home = tmp_path / "home"
    node = installed_local(str(home))
    results = {"failed": {"code": 125}, "killed": {}, "done": {"code": 0}, "young": {"code": 125}}
    for name, result in results.items():
        folder = home / "pulls" / name
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "lock").touch()
        age_days = 0 if name == "young" else 2
        os.utime(folder, (time.time() - age_days * 86_400,) * 2)

    node.prune()

    assert {path.name for path in (home / "pulls").iterdir()} == {"done", "young"}


def test_volumes_of_containers_that_are_gone_are_removed_and_no_others(
    node: TestedNode, podman: PodmanStore, ssh_node: SshdNode
) -> None:
    ours = [f"--label=rpm.installation={INSTALLATION}", f"--label=rpm.home={ssh_node.home}"]
    anonymous, used, foreign, elsewhere = (letter * 64 for letter in "abcd")
    for name, labels in (
        (anonymous, ours),
        (used, ours),
        ("a-name", ours),
        (foreign, []),
        (elsewhere, [ours[0], "--label=rpm.home=/another/home"]),
    ):
        podman.run("volume", "create", *labels, name)
    podman.run("create", "--name=user", f"--volume={used}:/used", podman.image, "true")

    node.prune()

    left = set(podman.run("volume", "ls", "--quiet").stdout.decode().split())
    podman.run("rm", "user")
    podman.run("volume", "rm", used, foreign, elsewhere, "a-name")
    assert left == {used, foreign, elsewhere, "a-name"}


def test_a_probe_prunes_once_a_day(tmp_path: Path) -> None:
    home = tmp_path / "home"
    node = installed_local(str(home))
    node.probe()
    old = home / "helper-0000"
    old.mkdir()
    long_ago = time.time() - 60 * 86_400
    os.utime(old, (long_ago, long_ago))
    node.probe()
    was_there = old.exists()
    os.utime(home / "pruned", (long_ago, long_ago))

    node.probe()

    wait_until(lambda: not old.exists(), what="the earlier helper is removed")
    assert was_there


def test_fences_go_when_their_tasks_are_forgotten(tmp_path: Path) -> None:
    home = tmp_path / "home"
    node = installed_local(str(home))
    requests = [node.launch_request("true", generation=2) for _ in range(3)]
    for request in requests:
        node.stop(member_of(request))
    over = [EndedTask(request.task_id, 2) for request in requests]
    # Of this one the node has heard a newer generation than is said to be over.
    over[2] = EndedTask(requests[2].task_id, 1)

    outcome = node.client.forget(ForgetRequest(installation=INSTALLATION, tasks=tuple(over)))

    assert isinstance(outcome, Answered)
    assert outcome.answer.forgotten == (requests[0].task_id, requests[1].task_id)
    assert [path.name for path in (home / "tasks").iterdir()] == [requests[2].task_id]
    assert not MemberFolder(str(home), MemberIdentity(requests[2].task_id, 2, 0)).exists()
