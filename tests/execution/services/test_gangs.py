"""Members of a gang: launched when the nodes of all are ready, with the address where they meet."""

from typing import Any

import pytest

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.client import NodeClient
from apps.execution.leases import NodeClock
from apps.execution.selectors import attempts_stranded, members_to_launch
from apps.execution.services.member_launch import member_launch
from apps.execution.transport.base import ExchangeFailed
from apps.nodes.models import Node, NodeState, Runtime
from apps.policies.models import Profile
from apps.tasks.models import Attempt, Member
from apps.tasks.services.members.gangs import PORTS, WAITING
from tests.allocation.state import enqueue, make_node
from tests.execution.services.scripted_node import Answer, ScriptedNode, done
from tests.people import Example

pytestmark = pytest.mark.django_db

DIGEST = f"sha256:{7:064x}"


@pytest.fixture
def duo(example: Example, alice: User) -> Attempt:
    """Two members, each on a node of its own."""
    for name in ("b1", "b2"):
        make_node(
            *(example.bare_metal,),
            name=name,
            gpus=4,
            runtime=Runtime.PODMAN,
            served_by="t",
            address=f"{name}.example.org",
        )
    enqueue(alice, example.dev_queue, image="registry/train:1", replicas=2)
    run_pass()
    return Attempt.objects.get()


def launch_member(member: Member, *answers: Answer) -> ScriptedNode:
    """Try to launch it; what its node was asked."""
    node = ScriptedNode()
    node.answers = list(answers)
    member_launch(
        member_id=member.pk,
        client=NodeClient(node, "ours"),
        clock=NodeClock("boot", 100.0, read_at=0.0),
        token="t",
    )
    assert node.answers == []
    return node


def present() -> Answer:
    return done(state="present", progress="", image_id=DIGEST, digest=DIGEST)


def running() -> Answer:
    return done(state="running")


def to_launch() -> list[int]:
    nodes = list(Node.objects.values_list("pk", flat=True))
    return [member.rank for member in members_to_launch(nodes, token="t")]


def test_nobody_is_launched_before_every_node_is_ready(duo: Attempt) -> None:
    first, second = duo.members.order_by("rank")
    assert to_launch() == [0, 1]

    requests = launch_member(first, present())

    assert requests.verbs() == ["pull"]
    first.refresh_from_db()
    duo.refresh_from_db()
    assert (first.state, first.lock_token, first.detail) == ("allocated", "", WAITING)
    assert (duo.state, duo.start_failures) == ("allocated", 0)
    # Found again when the other one is ready, and not before.
    assert to_launch() == [1]

    requests = launch_member(second, present(), running())

    assert requests.verbs() == ["pull", "launch"]
    assert to_launch() == [0]
    assert launch_member(first, present(), running()).verbs() == ["pull", "launch"]
    duo.refresh_from_db()
    assert (duo.state, to_launch()) == ("running", [])


def test_an_image_that_one_node_cannot_get_lets_nobody_start(duo: Attempt) -> None:
    first, second = duo.members.order_by("rank")
    launch_member(first, present())

    words = "no space left on the registry"
    # It is not the node's fault: containers start there.
    launch_member(second, done(state="failed", progress=words), done(state="passed"))

    duo.refresh_from_db()
    first.refresh_from_db()
    assert duo.state == "stopping"
    assert "Member 1 ended without an exit code" in duo.stop_detail
    assert "no space left on the registry" in duo.stop_detail
    assert (first.state, first.launched_at, to_launch()) == ("allocated", None, [])


def test_a_gang_that_waits_for_a_node_that_is_gone_waits_for_another(duo: Attempt) -> None:
    first, _second = duo.members.order_by("rank")
    launch_member(first, present())
    assert attempts_stranded() == []

    Node.objects.filter(name="b2").update(state=NodeState.SUSPECT)

    assert attempts_stranded() == [duo.pk]


def test_a_launch_that_is_sent_again_waits_for_nobody(duo: Attempt) -> None:
    first, second = duo.members.order_by("rank")
    launch_member(first, present())
    launch_member(second, present(), ExchangeFailed("cut"))
    Member.objects.filter(pk=first.pk).update(ready_at=None)

    assert to_launch() == [0, 1]
    assert launch_member(second, present(), running()).verbs() == ["pull", "launch"]


def launched(*attempts: Attempt) -> list[dict[str, Any]]:
    """What each member was launched with, by attempt and rank."""
    found: list[dict[str, Any]] = []
    for attempt in attempts:
        first, second = attempt.members.order_by("rank")
        launch_member(first, present())
        last = launch_member(second, present(), running()).requests[-1]
        found += [launch_member(first, present(), running()).requests[-1], last]
    return found


def meeting_place(requests: dict[str, Any]) -> tuple[object, ...]:
    """Rank, size, address and port, and what the node opens."""
    spec = requests["spec"]
    variables = spec["environment"]
    names = ("RPM_RANK", "RPM_WORLD_SIZE", "RPM_MASTER_ADDR", "RPM_MASTER_PORT")
    return (*(variables[name] for name in names), spec["ports"])


def test_members_learn_where_they_meet_and_the_node_of_the_first_opens_the_port(
    duo: Attempt,
) -> None:
    one, other = launched(duo)

    port = PORTS[0]
    assert meeting_place(one) == ("0", "2", "b1.example.org", str(port), [port])
    assert meeting_place(other) == ("1", "2", "b1.example.org", str(port), [])


def test_on_the_network_of_the_node_nothing_has_to_be_opened(duo: Attempt) -> None:
    Profile.objects.update(host_network=True)

    one, other = launched(duo)

    first, second = one["spec"], other["spec"]
    assert (first["network"], first["ports"], second["ports"]) == ("host", [], [])


def test_gangs_that_meet_on_one_node_have_a_port_each_until_they_end(
    example: Example, alice: User
) -> None:
    for name in ("b1", "b2"):
        make_node(example.bare_metal, name=name, gpus=8, runtime=Runtime.PODMAN, served_by="t")
    Profile.objects.filter(pk=example.profile.pk).update(request={"gpu": "2"})
    enqueue(alice, example.dev_queue, 2, image="registry/train:1", replicas=2)
    run_pass()
    gangs = list(Attempt.objects.order_by("pk"))
    for gang in gangs:
        gang.members.filter(rank=0).update(node=Node.objects.get(name="b1"))

    launched(*gangs)

    assert [Attempt.objects.get(pk=gang.pk).master_port for gang in gangs] == [
        PORTS[0],
        PORTS[1],
    ]
