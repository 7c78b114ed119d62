"""From a task to its first line, and from a stop to nothing: over SSH with podman, and by hand.

Every figure is taken twice in each round, once by hand (`execution_bare.py`: `podman run`, `stop`
and `kill` over one open SSH connection to the node) and once by the installation
(`execution_installation.py`), so that whatever else the machine does meets both. The clock is the
machine's own since it booted, which containers read as well.

A first line counts from when a client can read it: by hand when the SSH client has it, else when
the row with it is committed, from which API and page answer. A container has gone when none of its
processes is left and podman has removed it.
"""

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.bench.execution_bare import Bare, by_hand
from tests.bench.execution_installation import BORROWER, LENDER, Managed, opened
from tests.bench.execution_stage import now_s

ROUNDS = 10
# What the step before has begun must not run into the next.
SETTLE_S = 0.4
GRACE_S = 5
SUBMIT = "submit to first line"
WRITTEN = "submit to first line, as the task writes it"
FREED = "freed to next first line"
STOPPED = "stop to gone, ends when asked"
KILLED = "stop to gone, no grace"
AT_ONCE = "preempt to beneficiary's line, no grace"
ASKED = f"preempt to beneficiary's line, grace {GRACE_S} s, ends when asked"
DEAF = f"preempt to beneficiary's line, grace {GRACE_S} s, ignores it"
PREEMPTIONS = ((AT_ONCE, 0, "ignores"), (ASKED, GRACE_S, "ends"), (DEAF, GRACE_S, "ignores"))


@dataclass(slots=True)
class Figure:
    """Seconds, one number per round on each side."""

    name: str
    rpm: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(self.rpm) / statistics.median(self.bare)


@dataclass(frozen=True, slots=True)
class Result:
    """All figures, and what they are to be judged by.

    Args:
        steps_s: medians from submission to place, to launch, to start, to the line's row.
        cpu_s: of web, worker, beat and Redis for one task, all that its round does included.
        load: of the machine, before and after.
    """

    figures: tuple[Figure, ...]
    rounds: int
    steps_s: tuple[float, ...]
    cpu_s: float
    load: tuple[float, float]


def measure(*, rounds: int = ROUNDS) -> Result:
    """Both sides in turns, after one round of each that does not count."""
    names = (SUBMIT, WRITTEN, FREED, STOPPED, KILLED, *(name for name, _, _ in PREEMPTIONS))
    load = os.getloadavg()[0]
    with opened() as (managed, node), by_hand(managed.stage, node) as bare:
        steps: list[tuple[float, ...]] = []
        tasks = 2 + 2 * len(PREEMPTIONS)
        for number in range(rounds + 1):
            if number == 1:
                cpu_s = managed.cpu_s()
            if number <= 1:
                figures = {name: Figure(name) for name in names}
                steps.clear()
            for name, seconds in _by_hand(bare):
                figures[name].bare.append(seconds)
            for name, seconds in _managed(managed, steps):
                figures[name].rpm.append(seconds)
        return Result(
            tuple(figures.values()),
            rounds,
            tuple(statistics.median(column) for column in zip(*steps, strict=True)),
            (managed.cpu_s() - cpu_s) / (rounds * tasks),
            (load, os.getloadavg()[0]),
        )


def _by_hand(bare: Bare) -> Iterator[tuple[str, float]]:
    yield from _first_by_hand(bare)
    for name, grace_s, program in PREEMPTIONS:
        victim = bare.run(program)
        victim.first_line_s()
        time.sleep(SETTLE_S)
        began = now_s()
        bare.stop(victim.name, grace_s=grace_s)
        taker = bare.run("ignores")
        yield name, taker.first_line_s() - began
        victim.end()
        container = bare.stage.container(f"name={taker.name}")
        time.sleep(SETTLE_S)
        began = now_s()
        bare.kill(taker.name)
        yield KILLED, container.gone_s() - began
        taker.end()


def _first_by_hand(bare: Bare) -> Iterator[tuple[str, float]]:
    began = now_s()
    first = bare.run("ends")
    yield SUBMIT, first.first_line_s() - began
    time.sleep(SETTLE_S)
    bare.stage.open_gate(first.name)
    wrote_s, ended_s = first.end()
    second = bare.run("ends")
    yield WRITTEN, wrote_s - began
    yield FREED, second.first_line_s() - ended_s
    container = bare.stage.container(f"name={second.name}")
    time.sleep(SETTLE_S)
    began = now_s()
    bare.stop(second.name, grace_s=GRACE_S)
    yield STOPPED, container.gone_s() - began
    second.end()


def _managed(managed: Managed, steps: list[tuple[float, ...]]) -> Iterator[tuple[str, float]]:
    managed.set_grace(BORROWER, GRACE_S)
    managed.set_grace(LENDER, 0)
    managed.await_quiet()
    time.sleep(SETTLE_S)
    yield from _first_managed(managed, steps)
    for name, grace_s, program in PREEMPTIONS:
        managed.set_grace(BORROWER, grace_s)
        victim = managed.run(BORROWER, program)
        managed.first_line_s(victim)
        time.sleep(SETTLE_S)
        began = now_s()
        taker = managed.run(LENDER, "ignores")
        yield name, managed.first_line_s(taker) - began
        managed.abort(BORROWER, victim)
        container = managed.stage.container(f"label=rpm.task={taker.id}")
        time.sleep(SETTLE_S)
        began = now_s()
        managed.abort(LENDER, taker)
        yield KILLED, container.gone_s() - began
        managed.await_quiet()


def _first_managed(managed: Managed, steps: list[tuple[float, ...]]) -> Iterator[tuple[str, float]]:
    began = now_s()
    first = managed.run(BORROWER, "ends")
    seen_s = managed.first_line_s(first)
    yield SUBMIT, seen_s - began
    [wrote_s] = managed.lines(BORROWER, first)
    yield WRITTEN, wrote_s - began
    steps.append((*managed.steps_s(first), seen_s - wrote_s))
    second = managed.run(BORROWER, "ends")
    managed.await_waiting(second)
    time.sleep(SETTLE_S)
    managed.open_gate(first)
    next_s = managed.first_line_s(second)
    _, ended_s = managed.lines(BORROWER, first)
    yield FREED, next_s - ended_s
    container = managed.stage.container(f"label=rpm.task={second.id}")
    time.sleep(SETTLE_S)
    began = now_s()
    managed.abort(BORROWER, second)
    yield STOPPED, container.gone_s() - began
    managed.await_quiet()
