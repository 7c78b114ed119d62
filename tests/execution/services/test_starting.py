"""Launching and stopping one member, whatever the node answers or does not answer."""

from collections.abc import Callable

import msgspec
import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.client import NodeClient
from apps.execution.services.starting import NodeClock, member_launch, member_stop
from apps.execution.transport.base import ExchangeFailed, TransportError, Unreachable
from apps.nodes.models import Runtime
from apps.tasks.models import Attempt, Holding, Task
from apps.tasks.services.ending import task_abort
from tests.allocation.state import enqueue, make_node
from tests.cast import Example

Answer = dict[str, object] | TransportError | Callable[[], dict[str, object]]


class ScriptedNode:
    """A transport with a node behind it that gives the next answer of a list."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[dict[str, object]] = []

    def exchange(self, request: bytes, *, timeout_s: float) -> bytes:
        self.asked.append(msgspec.json.decode(request))
        answer = self.answers.pop(0)
        if isinstance(answer, TransportError):
            raise answer
        if callable(answer):
            answer = answer()
        clocks = {"protocol": 1, "helper": "1", "boot_id": "boot", "uptime_s": 5.0, "wall_s": 5.0}
        return msgspec.json.encode(clocks | answer)

    def install(self, program: bytes, *, timeout_s: float) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        """There is no connection."""

    def verbs(self) -> list[object]:
        return [request["verb"] for request in self.asked]


def done(**answer: object) -> dict[str, object]:
    return {"answer": answer}


def refusal(code: str, detail: str = "its words") -> dict[str, object]:
    return {"refusal": {"code": code, "detail": detail}}


@pytest.fixture
def node() -> ScriptedNode:
    return ScriptedNode()


@pytest.fixture
def attempt(example: Example, alice: User) -> Attempt:
    make_node(example.bare_metal, name="b1", runtime=Runtime.PODMAN)
    enqueue(alice, example.dev_queue, image="registry/train:1")
    run_pass()
    return Attempt.objects.get()


@pytest.fixture
def process(attempt: Attempt) -> Attempt:
    """On a node without images."""
    holding = attempt.holdings.select_related("node").get()
    assert holding.node is not None
    type(holding.node).objects.update(runtime=Runtime.PROCESS, allows_process=True)
    return attempt


def launch(attempt: Attempt, node: ScriptedNode) -> None:
    member_launch(
        holding_id=attempt.holdings.get().pk,
        client=NodeClient(node, "ours"),
        clock=NodeClock("boot", 100.0, read_at=0.0),
        token="t",
    )


def seen(attempt: Attempt) -> tuple[str, str, str]:
    """States of member, attempt and task."""
    attempt.refresh_from_db()
    task = Task.objects.get(pk=attempt.task_id)
    return str(attempt.holdings.get().state), str(attempt.state), str(task.state)


def test_a_launch_tells_the_node_everything_and_the_task_runs(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [done(state="running")]

    launch(process, node)

    assert seen(process) == ("running", "running", "running")
    (asked,) = node.asked
    assert asked["task_id"] == str(process.task_id)
    assert (asked["generation"], asked["rank"], asked["boot_id"]) == (1, 0, "boot")
    devices = Holding.objects.get().devices
    assert [one["uuid"] for one in asked["devices"]] == [  # type: ignore[attr-defined]  # decoded JSON
        f"GPU-b1-{index}" for index, _ in devices
    ]


def test_a_launch_that_is_not_wanted_any_more_is_never_sent(
    process: Attempt, node: ScriptedNode, alice: User
) -> None:
    task_abort(actor=alice, task=Task.objects.get())

    launch(process, node)

    assert node.asked == []


def test_the_image_is_fetched_first_and_the_way_is_told(
    attempt: Attempt, node: ScriptedNode
) -> None:
    details: list[str] = []

    def note() -> dict[str, object]:
        details.append(Holding.objects.get().detail)
        return done(state="present", progress="")

    node.answers = [done(state="pulling", progress="40 of 90 MB"), note, done(state="running")]

    launch(attempt, node)

    assert node.verbs() == ["pull", "pull", "launch"]
    assert details == ["Fetching the image. 40 of 90 MB"]
    assert seen(attempt) == ("running", "running", "running")


def test_an_abort_while_the_image_is_fetched_ends_the_launch(
    attempt: Attempt, node: ScriptedNode, alice: User
) -> None:
    def abort() -> dict[str, object]:
        task_abort(actor=alice, task=Task.objects.get())
        return done(state="present", progress="")

    node.answers = [abort]

    launch(attempt, node)

    assert node.verbs() == ["pull"]
    assert seen(attempt) == ("starting", "stopping", "stopping")


def test_an_image_that_cannot_be_fetched_fails_the_task_with_the_nodes_words(
    attempt: Attempt, node: ScriptedNode
) -> None:
    node.answers = [done(state="failed", progress="manifest unknown")]

    launch(attempt, node)

    assert seen(attempt) == ("exited", "finished", "failed")
    assert Task.objects.get().state_detail == "Image registry/train:1: manifest unknown"


def test_a_container_that_cannot_start_fails_the_task_with_the_nodes_words(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [refusal("start_failed", "no such file: train")]

    launch(process, node)

    assert seen(process) == ("exited", "finished", "failed")
    assert Task.objects.get().state_detail == "no such file: train"


@pytest.mark.parametrize("code", ["late", "older_alive", "other_boot"])
def test_a_refusal_that_passes_is_tried_again_later(
    process: Attempt, node: ScriptedNode, code: str
) -> None:
    node.answers = [refusal(code)]

    launch(process, node)

    assert seen(process) == ("allocated", "allocated", "allocated")
    assert process.not_before is not None
    assert process.not_before > timezone.now()
    assert process.start_failures == 1


def test_a_refusal_that_does_not_pass_fails_the_task(process: Attempt, node: ScriptedNode) -> None:
    node.answers = [refusal("not_allowed", "plain processes are not allowed")]

    launch(process, node)

    assert seen(process) == ("exited", "finished", "failed")
    assert "plain processes are not allowed" in Task.objects.get().state_detail


def test_a_launch_that_was_surely_not_sent_is_tried_again(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [Unreachable("no route")]

    launch(process, node)

    assert seen(process) == ("allocated", "allocated", "allocated")


def test_a_launch_that_may_have_arrived_waits_for_the_report(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [ExchangeFailed("cut")]

    launch(process, node)
    launch(process, node)

    assert node.verbs() == ["launch"]
    assert seen(process) == ("starting", "starting", "allocated")


def test_an_answer_that_makes_no_sense_counts_as_none(process: Attempt, node: ScriptedNode) -> None:
    node.answers = [done(state="dancing")]

    launch(process, node)

    assert seen(process) == ("starting", "starting", "allocated")


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(done(state="stopping"), "stopping", id="it stops"),
        pytest.param(done(state="exited"), "stopping", id="its end comes with a report"),
        pytest.param(done(state="absent"), "aborted", id="it never came, and cannot any more"),
        pytest.param(Unreachable("no route"), "stopping", id="nobody answers"),
    ],
)
def test_a_stop(
    process: Attempt, node: ScriptedNode, alice: User, answer: Answer, want: str
) -> None:
    node.answers = [ExchangeFailed("cut"), answer]
    launch(process, node)
    task_abort(actor=alice, task=Task.objects.get())
    holding = Holding.objects.select_related("attempt__queue").get()

    member_stop(holding=holding, client=NodeClient(node, "ours"))

    assert node.verbs() == ["launch", "stop"]
    assert node.asked[1]["grace_s"] == 30.0
    assert seen(process)[2] == want


def test_a_member_that_a_reboot_cleared_away_is_lost_and_its_task_runs_again(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [refusal("ended", "this member has ended or was stopped before it came")]

    launch(process, node)

    assert seen(process) == ("exited", "lost", "queued")
    assert Task.objects.get().failures == 0
