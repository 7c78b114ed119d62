"""kill -9 at every numbered step of launch, stop, preempt and finish; then all is as it should be.

Real processes: the program that decides and serves nodes, a node behind sshd, and work that writes
down when it lives and holds a lock that two living copies cannot both have.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.machine import boot_clock
from tests.execution.crashes.stage import NARROW, PATIENCE_S, SLOTS, TIGHT, WIDE, Stage, opened
from tests.execution.crashes.verbs import (
    Finish,
    Launch,
    Preempt,
    PreemptOfMany,
    Stop,
    Verb,
    begin,
    clear,
    is_cleared,
    prepare,
)
from tests.services.requirements import need
from tests.services.timeouts import scale_timeout
from tools.packages import find_program

pytestmark = pytest.mark.postgres_only

LAUNCHING = (
    *("launch.claimed", "launch.pulled", "launch.leased", "launch.half-sent"),
    *("launch.answered", "launch.noted"),
)
STOPPING = ("stop.sending", "stop.half-sent", "stop.answered")
FINISHING = (*("finish.reported", "finish.committed", "finish.half-sent", "finish.acknowledged"),)
# What is done, and which steps of the control plane it passes.
CONTROL: dict[str, tuple[type[Verb], str, tuple[str, ...]]] = {
    "launch": (Launch, WIDE, LAUNCHING),
    "stop": (Stop, WIDE, ("stop.asked", *STOPPING, *FINISHING)),
    "preempt": (
        PreemptOfMany,
        TIGHT,
        ("preempt.planned", *STOPPING, *FINISHING, *LAUNCHING),
    ),
    "finish": (Finish, WIDE, FINISHING),
}
NODE_LAUNCHING = (
    *("node.launch.fenced", "node.launch.noted", "node.launch.starting"),
    *("node.launch.created", "node.launch.started", "node.launch.answering"),
)
NODE_STOPPING = ("node.stop.noted", "node.stop.begun", "node.stop.terminated", "node.stop.killed")
NODE_FINISHING = (
    *("node.finish.ended", "node.finish.written", "node.finish.cleaned"),
    *("node.finish.acknowledged", "node.finish.dropping"),
)
NODE: tuple[tuple[type[Verb], tuple[str, ...]], ...] = (
    (Launch, NODE_LAUNCHING),
    (Stop, (*NODE_STOPPING, *NODE_FINISHING)),
    (Preempt, (*NODE_STOPPING, *NODE_FINISHING, *NODE_LAUNCHING)),
    (Finish, NODE_FINISHING),
)
# Ended here, nobody is left that has the code of the work, or has started it.
UNWATCHED = frozenset({"node.launch.starting", "node.finish.ended"})
# Ended here, the work goes on, and when it ends nobody that waits for it as its parent lives.
ORPHANED = frozenset({"node.launch.created", "node.launch.started"})
# Being preempted for another task is a stop, an end and a launch: with it nearly every step is
# tried once. The others are tried with `-m chaos`.
BESIDES = frozenset({("stop", "stop.asked"), ("finish", "finish.committed")})
CONTROL_CASES = [
    pytest.param(
        verb,
        point,
        id=f"{verb}-{point}",
        marks=() if verb == "preempt" or (verb, point) in BESIDES else pytest.mark.chaos,
    )
    for verb, (_, _, points) in CONTROL.items()
    for point in points
]
NODE_CASES = [(kind, point) for kind, points in NODE for point in points]
BATCHES = [
    NODE_CASES[first : first + len(NARROW)] for first in range(0, len(NODE_CASES), len(NARROW))
]
# Passed by the process that waits for the work, which has to know of it when it is launched.
BY_SUPERVISOR = frozenset({"node.finish.ended", "node.finish.written", "node.finish.cleaned"})


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One installation for all of them."""
    need("sshd")
    need("cc", because=None if find_program("cc") else "cc not found")
    if os.geteuid() != 0:
        need("root", because="the work of a node runs as another user")
    with opened() as stage:
        stage.add_nodes(WIDE, TIGHT)
        stage.serve()
        stage.submit(*[(f"poor-{TIGHT}", "plain")] * SLOTS)
        patiently(lambda: stage.counts(f"poor-{TIGHT}")["running"] == SLOTS, "the pool is full")
        yield stage


def patiently(condition: Callable[[], bool], what: str) -> None:
    """Looks seldom: each look asks the database several things."""
    began_s = boot_clock()
    while not condition():
        assert boot_clock() - began_s < scale_timeout(PATIENCE_S), f"never happened: {what}"
        time.sleep(0.1)


@pytest.mark.parametrize(("verb", "point"), CONTROL_CASES)
def test_a_process_of_the_control_plane_is_killed(stage: Stage, verb: str, point: str) -> None:
    kind, lane, _ = CONTROL[verb]
    case = kind(stage, lane)
    prepare(stage, [case])
    patiently(lambda: case.is_prepared, "it runs")
    stage.end_server()

    if point == "stop.asked":
        begin(stage, [case], crash_at=point)
    else:
        killed = stage.serve(crash_at=point)
        begin(stage, [case])
        stage.await_end(killed)
    began_s = boot_clock()
    stage.serve()
    patiently(lambda: case.is_settled, f"{verb} is settled after {point}")
    stage.settled_s[f"{verb} {point}"] = boot_clock() - began_s

    assert list(stage.breaches()) == []
    if verb != "preempt":
        clear(stage, [case])


@pytest.fixture(scope="module")
def narrow(stage: Stage) -> Stage:
    """The same installation, with a node for each step that is tried at once."""
    stage.end_server()
    stage.add_nodes(*NARROW)
    stage.serve()
    return stage


def named(batch: list[tuple[type[Verb], str]]) -> str:
    return ",".join(f"{kind.__name__.lower()}-{point}" for kind, point in batch)


@pytest.mark.chaos
@pytest.mark.parametrize("batch", BATCHES, ids=named)
def test_processes_of_the_helper_are_killed(
    narrow: Stage, batch: list[tuple[type[Verb], str]]
) -> None:
    stage = narrow
    cases = [_case(stage, lane, *one) for lane, one in zip(NARROW, batch, strict=False)]
    try:
        _arm(cases, batch, is_supervisor=True)
        prepare(stage, cases)
        patiently(lambda: all(case.is_prepared for case in cases), "all of them run")
        _arm(cases, batch, is_supervisor=False)

        begin(stage, cases)
        _await_all(stage, cases, batch)

        for case, (_, point) in zip(cases, batch, strict=True):
            if point in UNWATCHED | ORPHANED:
                stage.note_unwatched(*case.tasks)
        assert list(stage.breaches()) == []
    finally:
        clear(stage, cases)
        patiently(lambda: is_cleared(cases), "the nodes are free again")


def _await_all(stage: Stage, cases: list[Verb], batch: list[tuple[type[Verb], str]]) -> None:
    """Until each has crashed and is settled again; notes how long that took."""
    left = dict(zip((point for _, point in batch), cases, strict=True))
    crashed_s: dict[str, float] = {}

    def are_settled() -> bool:
        for point, case in list(left.items()):
            if point not in crashed_s and stage.has_crashed(case.lane):
                crashed_s[point] = boot_clock()
            if point in crashed_s and case.is_settled:
                name = f"{type(case).__name__.lower()} {point}"
                stage.settled_s[name] = boot_clock() - crashed_s[point]
                del left[point]
        return not left

    began_s = boot_clock()
    while not are_settled():
        found = [f"{point} ({'it' if point in crashed_s else 'nothing'} crashed)" for point in left]
        waited_s = boot_clock() - began_s
        assert waited_s < scale_timeout(PATIENCE_S), f"not settled: {', '.join(found)}"
        time.sleep(0.1)


def _case(stage: Stage, lane: str, kind: type[Verb], point: str) -> Verb:
    case = kind(stage, lane, is_unwatched=point in UNWATCHED)
    if point == "node.stop.killed":
        case.manner = "stubborn"
    return case


def _arm(cases: list[Verb], batch: list[tuple[type[Verb], str]], *, is_supervisor: bool) -> None:
    for case, (_, point) in zip(cases, batch, strict=True):
        if (point in BY_SUPERVISOR) == is_supervisor:
            case.stage.crash_node_at(case.lane, point)


@pytest.mark.chaos
def test_in_the_end_nothing_is_lost_and_every_step_was_tried(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs last: ends what is left, looks at everything once more, and tells how long it took."""
    if not stage.server:
        stage.serve()
    stage.abort_all()
    patiently(lambda: not stage.open_tasks(), "everything has ended")

    assert stage.breaches(is_over=True) == ()
    took = sorted(stage.settled_s.items(), key=lambda one: -one[1])
    if took:
        worst, median_s = took[0], took[len(took) // 2][1]
        words = f"{len(took)} steps, settled again after {median_s:.1f} s (median)"
        with capsys.disabled():
            sys.stdout.write(f"\n{words}, {worst[1]:.1f} s at worst ({worst[0]})\n")
