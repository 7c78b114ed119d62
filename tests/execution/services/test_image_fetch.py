"""Images are there before the launch, and are those that the pool allows."""

import base64
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.core import keyring
from apps.core.images import ImageName
from apps.execution.client import NodeClient
from apps.execution.leases import NodeClock
from apps.execution.services.image_fetch import ImageRequest, image_fetch
from apps.execution.services.member_launch import member_launch
from apps.execution.transport.base import ExchangeFailed, Unreachable
from apps.nodes.models import Runtime
from apps.policies.models import Pool, RegistryCredential
from apps.policies.services import registry_credential_save
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.attempts.images import ImageIdentity
from apps.tasks.services.stop import task_abort
from tests.allocation.state import change_content, enqueue, make_node
from tests.execution.services.scripted_node import (
    Answer,
    ScriptedNode,
    done,
    launch,
    refusal,
    states_of,
)
from tests.people import Example

HOST = "registry.example.org"
PASSWORD = "s3cret pass"
BASIC = base64.b64encode(f"robot:{PASSWORD}".encode()).decode()


def test_an_image_that_its_pool_does_not_allow_any_more_is_not_launched(
    attempt: Attempt, node: ScriptedNode
) -> None:
    Pool.objects.update(allowed_images=["registry.example.org/*"])

    launch(attempt, node)

    assert node.requests == []
    attempt.refresh_from_db()
    assert attempt.detail == (
        "Image docker.io/registry/train:1 is not allowed in its pool, only: registry.example.org/*."
    )


def test_a_task_without_an_image_fails_at_once_on_a_node_of_containers(
    attempt: Attempt, node: ScriptedNode
) -> None:
    change_content(image="")

    launch(attempt, node)

    assert node.requests == []
    words = "image is missing: its node starts containers (podman) only. Name one."
    task = Task.objects.get()
    assert (task.state, task.state_detail) == ("failed", words)
    assert not Member.objects.filter(released_at=None).exists()


def test_the_image_is_fetched_first_and_its_progress_is_shown(
    attempt: Attempt, node: ScriptedNode
) -> None:
    details: list[str] = []

    def note() -> dict[str, object]:
        details.append(Member.objects.get().detail)
        return done(state="present", progress="")

    node.answers = [done(state="pulling", progress="40 of 90 MB"), note, done(state="running")]

    launch(attempt, node)

    assert node.verbs() == ["pull", "pull", "launch"]
    assert details == ["Fetching the image. 40 of 90 MB"]
    assert states_of(attempt) == ("running", "running", "running")


def test_an_abort_while_the_image_is_fetched_ends_the_launch(
    attempt: Attempt, node: ScriptedNode, alice: User
) -> None:
    def abort() -> dict[str, object]:
        task_abort(actor=alice, task=Task.objects.get())
        return done(state="present", progress="")

    node.answers = [abort]

    launch(attempt, node)

    assert node.verbs() == ["pull"]
    assert states_of(attempt) == ("starting", "stopping", "stopping")


def test_an_image_that_cannot_be_fetched_fails_the_task_with_the_nodes_words(
    attempt: Attempt, node: ScriptedNode
) -> None:
    node.answers = [done(state="failed", progress="manifest unknown"), done(state="passed")]

    launch(attempt, node)

    assert states_of(attempt) == ("exited", "finished", "failed")
    assert Task.objects.get().state_detail == "Image docker.io/registry/train:1: manifest unknown"


def test_an_image_that_was_removed_from_the_node_is_fetched_again(
    attempt: Attempt, node: ScriptedNode
) -> None:
    client = NodeClient(node, "ours")
    name = ImageName.parse("registry/train:1")
    wanted = ImageRequest(name, "podman", attempt.policy.group_id, ImageIdentity())
    node.answers = [done(state="present", progress="")]
    image_fetch(client, wanted, keep=lambda _: True, note=lambda image: image)
    node.answers = [refusal("image_missing", "image not known")]

    launch(attempt, node, client)

    assert states_of(attempt) == ("exited", "finished", "queued")
    assert Task.objects.get().failures == 0
    run_pass()
    node.answers = [done(state="present", progress=""), done(state="running")]
    launch(Attempt.objects.get(generation=2), node, client)
    assert node.verbs() == ["pull", "launch", "pull", "launch"]
    assert Task.objects.get().state == "running"


def test_a_private_image_is_fetched_with_what_the_policys_group_has(
    attempt: Attempt, node: ScriptedNode, dev_group: Group, root: User
) -> None:
    guard(dev_group)
    node.answers = [found(1), done(state="running")]

    launch(attempt, node)

    pull, requests = node.requests
    assert pull["login"] == {
        "registry": HOST,
        "username": "robot",
        "password": PASSWORD,
        "revision": f"{RegistryCredential.objects.get().pk}.1",
    }
    assert pull["always"] is True
    assert PASSWORD not in str(requests)
    assert states_of(attempt) == ("running", "running", "running")


def test_a_group_without_a_password_asks_the_registry_as_anybody(
    attempt: Attempt, node: ScriptedNode, research_group: Group
) -> None:
    guard(research_group)
    node.answers = [done(state="failed", progress="unauthorized"), done(state="passed")]

    launch(attempt, node)

    pull = node.requests[0]
    assert (pull.get("login"), pull["always"]) == (None, True)
    assert states_of(attempt) == ("exited", "finished", "failed")


def test_a_password_whose_key_is_gone_fails_the_task_with_words(
    attempt: Attempt, node: ScriptedNode, dev_group: Group, settings: Any
) -> None:
    guard(dev_group)
    settings.RPM_SECRET_KEYS = [keyring.new_key()]

    launch(attempt, node)

    assert node.requests == []
    assert f"The password for {HOST} cannot be read." in Task.objects.get().state_detail


def test_a_password_is_in_no_row_of_the_database_and_in_no_log(
    attempt: Attempt,
    node: ScriptedNode,
    dev_group: Group,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    guard(dev_group)
    caplog.set_level(0)
    node.answers = [
        done(state="pulling", progress="1 of 2"),
        Unreachable("no route"),
    ]
    launch(attempt, node)
    Attempt.objects.update(not_before=None)
    node.answers = [
        found(1),
        refusal("start_failed", "no such file: train"),
        done(state="passed"),
    ]
    launch(attempt, node)

    dump = StringIO()
    call_command("dumpdata", stdout=dump)

    assert str(node.requests).count(PASSWORD) == 3
    assert states_of(attempt) == ("exited", "finished", "failed")
    assert "robot" in dump.getvalue()
    for text in (dump.getvalue(), caplog.text, *capfd.readouterr()):
        assert PASSWORD not in text
        assert BASIC not in text


def test_what_the_name_stands_for_is_noted_and_launched(
    attempt: Attempt, node: ScriptedNode, api_as: Callable[[User], APIClient], alice: User
) -> None:
    node.answers = [found(1), ExchangeFailed("cut"), done(state="running")]
    client = NodeClient(node, "ours")

    launch(attempt, node, client)
    launch(attempt, node, client)

    assert node.verbs() == ["pull", "launch", "launch"]
    for spec in node.specs():
        assert (spec["image"], spec["digest"]) == ("docker.io/registry/train:1", digest(1))
    response = api_as(alice).get(f"/api/v1/tasks/{attempt.task_id}/attempts/").json()
    rows = response if isinstance(response, list) else response["results"]
    (row,) = rows
    assert (row["image_digest"], row["image_id"]) == (digest(1), digest(101))


def test_all_members_of_a_gang_run_what_the_first_one_found(
    duo: Attempt, node: ScriptedNode
) -> None:
    first, second = duo.members.order_by("rank")
    # Its own clients know nothing of one another; the tag has moved meanwhile. The first waits
    # until the second has the image, too.
    for member, answers in (
        (first, [found(1)]),
        (second, [found(1), done(state="running")]),
        (first, [found(1), done(state="running")]),
    ):
        node.answers = list[Answer](answers)
        launch_member(member, node)

    pulls = [requests for requests in node.requests if requests["verb"] == "pull"]
    assert [pull["digest"] for pull in pulls] == ["", digest(1), digest(1)]
    assert [spec["digest"] for spec in node.specs()] == [digest(1), digest(1)]


def test_a_member_that_finds_another_image_fetches_that_of_the_first(
    duo: Attempt, node: ScriptedNode
) -> None:
    first, second = duo.members.order_by("rank")

    def meanwhile() -> dict[str, object]:
        """The first member is faster, and another image is under the tag by now."""
        fast = ScriptedNode()
        fast.answers = [found(1)]
        launch_member(first, fast)
        return found(2)

    node.answers = [meanwhile, found(1), done(state="running")]

    launch_member(second, node)

    pulls = [requests["digest"] for requests in node.requests[:2]]
    assert (pulls, [spec["digest"] for spec in node.specs()]) == (["", digest(1)], [digest(1)])
    node.answers = [found(1), done(state="running")]
    launch_member(first, node)
    duo.refresh_from_db()
    assert (duo.image_digest, duo.state) == (digest(1), "running")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(
            done(state="failed", progress="manifest unknown"),
            f"this attempt runs sha256:{1:064x}, which its node cannot get. manifest unknown",
            id="the digest is not to be had",
        ),
        pytest.param(None, "its node has another one under that name", id="no registry knows it"),
    ],
)
def test_a_gang_whose_members_have_different_images_fails_and_says_so(
    duo: Attempt, node: ScriptedNode, answer: dict[str, object] | None, words: str
) -> None:
    first, second = duo.members.order_by("rank")
    node.answers = [found(1) if answer else found(1, is_local=True)]
    launch_member(first, node)
    node.answers = [answer or found(2, is_local=True)]
    if answer:
        node.answers.append(done(state="passed"))

    launch_member(second, node)

    duo.refresh_from_db()
    assert duo.state == "stopping"
    assert words in duo.stop_detail
    assert node.verbs()[:2] == ["pull", "pull"]


def guard(group: Group) -> None:
    """The registry of the task's image is one for which this group has a password."""
    change_content(image=f"{HOST}/train:1")
    registry_credential_save(
        actor=None, group=group, registry=HOST, username="robot", password=PASSWORD
    )


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def found(number: int, *, is_local: bool = False) -> dict[str, object]:
    """A pull's answer: the image number so-and-so is there."""
    return done(
        state="present",
        progress="",
        image_id=digest(100 + number),
        digest="" if is_local else digest(number),
    )


def launch_member(member: Member, node: ScriptedNode) -> None:
    member_launch(
        member_id=member.pk,
        client=NodeClient(node, "ours"),
        clock=NodeClock("boot", 100.0, read_at=0.0),
        token="t",
    )


@pytest.fixture
def duo(example: Example, alice: User) -> Attempt:
    """Two members, each on a node of its own."""
    for name in ("b1", "b2"):
        make_node(example.bare_metal, name=name, gpus=4, runtime=Runtime.PODMAN, served_by="t")
    enqueue(alice, example.dev_queue, image="registry/train:1", replicas=2)
    run_pass()
    return Attempt.objects.get()
