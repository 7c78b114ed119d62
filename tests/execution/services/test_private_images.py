"""A private image from the database to a container: real sshd, real podman, real registry."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import Group

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.leases import NodeClock
from apps.execution.protocol.requests import MemberKey
from apps.execution.services.member_launch import member_launch
from apps.nodes.models import Runtime
from apps.policies.services import registry_credential_save
from apps.tasks.models import Attempt
from tests.allocation.state import change_content, enqueue, make_node
from tests.execution.nodes import TestedNode, installed_ssh
from tests.execution.services.scripted_node import states_of
from tests.people import Example
from tests.services.podman import PodmanStore
from tests.services.registry import Registry, running_registry
from tests.services.sshd import SshdNode

PASSWORD = "s3cret pass"


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as registry:
        registry.people = {"robot": PASSWORD}
        yield registry


@pytest.fixture
def machine(
    ssh_node: SshdNode, podman: PodmanStore, registry: Registry, tmp_path: Path
) -> Iterator[TestedNode]:
    node = installed_ssh(ssh_node, podman.environment | registry.environment(tmp_path))
    yield node
    node.client.transport.close()


def launched(alice: User, example: Example, machine: TestedNode, image: str) -> Attempt:
    """Admit one task with this image, stored as earlier versions did, and launch it."""
    make_node(example.bare_metal, name="b1", runtime=Runtime.PODMAN, served_by="t")
    enqueue(alice, example.dev_queue, image="busybox")
    change_content(command=["cat", "/word"], image=image)
    run_pass()
    attempt = Attempt.objects.get()
    type(alice).objects.filter(pk=alice.pk).update(unix_uid=12345)
    clocks = machine.probe().clocks
    member_launch(
        member_id=attempt.members.get().pk,
        client=machine.client,
        clock=NodeClock(clocks.boot_id, clocks.uptime_s, read_at=time.monotonic()),
        token="t",
    )
    attempt.refresh_from_db()
    return attempt


def test_the_policys_group_runs_what_it_has_the_password_for(
    alice: User, example: Example, dev_group: Group, machine: TestedNode, registry: Registry
) -> None:
    digest = registry.push("team/train", "1", word="ours alone")
    registry_credential_save(
        actor=None, group=dev_group, registry=registry.host, username="robot", password=PASSWORD
    )

    attempt = launched(alice, example, machine, f"{registry.host}/team/train:1")

    assert attempt.image_digest == digest, attempt.detail
    member = MemberKey(str(attempt.task_id), 1)
    assert machine.wait_for_exit(member).exit_code == 0
    assert machine.logs[member] == b"ours alone"


def test_another_groups_password_is_no_help(
    alice: User, example: Example, research_group: Group, machine: TestedNode, registry: Registry
) -> None:
    registry.push("team/train", "1", word="not yours")
    registry_credential_save(
        actor=None,
        group=research_group,
        registry=registry.host,
        username="robot",
        password=PASSWORD,
    )

    attempt = launched(alice, example, machine, f"{registry.host}/team/train:1")

    assert states_of(attempt) == ("exited", "finished", "failed")
    assert "unauthorized" in attempt.detail
    assert {name for name, _ in registry.asked} == {""}


def image_number(podman: PodmanStore, name: str) -> str:
    return podman.run("image", "inspect", "--format={{.Id}}", "--", name).stdout.decode().strip()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("private/model:1", id="without its registry"),
        pytest.param("model:1", id="the last part of its name"),
        pytest.param("containers-storage:{number:.12}", id="a part of its number, by transport"),
        pytest.param("containers-storage:registry.teamb.example/private/model:1", id="transport"),
        pytest.param("{number:.12}", id="a part of its number"),
    ],
)
def test_another_groups_private_image_runs_under_no_other_name(
    alice: User,
    example: Example,
    research_group: Group,
    machine: TestedNode,
    podman: PodmanStore,
    name: str,
) -> None:
    private = "registry.teamb.example/private/model:1"
    podman.run("tag", podman.image, private)
    registry_credential_save(
        actor=None,
        group=research_group,
        registry="registry.teamb.example",
        username="robot",
        password=PASSWORD,
    )

    attempt = launched(
        alice, example, machine, name.format(number=image_number(podman, podman.image))
    )

    podman.run("untag", podman.image, private)
    assert states_of(attempt) == ("exited", "finished", "failed")
    assert attempt.image_id == ""


def test_what_one_group_fetched_from_its_own_registry_is_not_docker_hubs(
    alice: User, example: Example, machine: TestedNode, registry: Registry, podman: PodmanStore
) -> None:
    registry.people = {}
    registry.push("pytorch/pytorch", "2", word="theirs")
    podman.run("pull", "--tls-verify=false", f"{registry.host}/pytorch/pytorch:2")
    registry.tags.clear()

    attempt = launched(alice, example, machine, "pytorch/pytorch:2")

    podman.run("rmi", "--force", f"{registry.host}/pytorch/pytorch:2")
    assert states_of(attempt) == ("exited", "finished", "failed")
    assert "Image docker.io/pytorch/pytorch:2: " in attempt.detail
