"""Faults that hit tasks, the processes that wait for them, and the helper's answers."""

import random
import re
import signal
from collections.abc import Iterator
from typing import Final

from tests.chaos.history import KilledAttempt, read_journal
from tests.chaos.machine import boot_clock, kill
from tests.chaos.nodes import ChaosNode
from tests.chaos.processes import attempts_monitored, exchanges, supervisors, variable
from tests.chaos.schedule import Fault
from tests.chaos.stage import PATIENCE, PATIENCE_STEP_S, NothingToHit, Stage

# How many of a node's latest launches come again.
REPEATED: Final = 6
LAUNCH: Final = re.compile(
    rb'"task_id":"([^"]+)","generation":([0-9]+).*"not_after_s":([0-9.]+)', re.DOTALL
)


def work_killed(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    for turn in range(PATIENCE):
        node = node_with_luck(stage, fault, turn)
        work = sorted(pid for pid in node.pids("job") if variable(pid, "RPM_TASK_ID"))
        if work:
            break
        yield PATIENCE_STEP_S
    else:
        raise NothingToHit
    pid = rng.choice(work)
    task, generation = variable(pid, "RPM_TASK_ID"), variable(pid, "RPM_ATTEMPT")
    # Noted first: the end of the work may be in the books before this process goes on.
    stage.killed.append(KilledAttempt(task, int(generation or 0), boot_clock()))
    kill(pid)


def work_stopped(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    """The work itself gives no sign of life for a while, and lives."""
    for turn in range(PATIENCE):
        node = node_with_luck(stage, fault, turn)
        work = sorted(pid for pid in node.pids("job") if variable(pid, "RPM_TASK_ID"))
        if work:
            break
        yield PATIENCE_STEP_S
    else:
        raise NothingToHit
    yield from _stopped_for([rng.choice(work)], fault.lasts_s)


def helper_stopped(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    """Requests that a node is just answering take long; others come meanwhile."""
    for turn in range(PATIENCE):
        answering = exchanges(node_with_luck(stage, fault, turn))
        if answering:
            yield from _stopped_for(answering, fault.lasts_s)
            return
        yield PATIENCE_STEP_S / 5
    raise NothingToHit


def _stopped_for(pids: list[int], seconds: float) -> Iterator[float]:
    pids = [pid for pid in pids if kill(pid, signal.SIGSTOP)]
    try:
        yield seconds
    finally:
        for pid in pids:
            kill(pid, signal.SIGCONT)


def launch_repeated(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    """Launches that a node has heard come again: late, twice, in another order."""
    for turn in range(PATIENCE):
        node = node_with_luck(stage, fault, turn)
        launches = _worth_repeating(node)[:REPEATED]
        if launches and node.is_up:
            rng.shuffle(launches)
            for launch in launches + launches[:1]:
                node.repeat(launch)
            return
        yield PATIENCE_STEP_S
    raise NothingToHit


def _worth_repeating(node: ChaosNode) -> list[bytes]:
    """Launches that no clock refuses yet and whose work has ended: the latest end first."""
    ends = {
        (life.task, life.generation): life.ended_s
        for life in read_journal(
            node.name, node.journal.read_text() if node.journal.exists() else ""
        )
        if life.ended_s is not None
    }
    found = []
    for launch in node.launches():
        match = LAUNCH.search(launch)
        if match and float(match[3]) > boot_clock():
            ended_s = ends.get((match[1].decode(), int(match[2])))
            if ended_s is not None:
                found.append((-ended_s, launch))
    return [launch for _, launch in sorted(found)]


def monitor_killed(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    """The container's monitor, or one of the helper's own processes next to the work."""
    for turn in range(PATIENCE):
        node = node_with_luck(stage, fault, turn)
        candidates = sorted([*node.pids("conmon"), *supervisors(node)])
        found = {pid: members for pid in candidates if (members := attempts_monitored(pid))}
        if found:
            pid = rng.choice(list(found))
            stage.unwatched += [KilledAttempt(*one, boot_clock()) for one in sorted(found[pid])]
            kill(pid)
            return
        yield PATIENCE_STEP_S
    raise NothingToHit


def node_with_luck(stage: Stage, fault: Fault, turn: int) -> ChaosNode:
    """The fault's own node; where nothing runs there for a while, the others in their turn."""
    names = list(stage.nodes)
    first = names.index(fault.target)
    return stage.nodes[names[(first + turn // 4) % len(names)]]
