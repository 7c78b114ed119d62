"""Faults that hit the programs of the control plane, and steps at which processes end."""

import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import psycopg

from apps.core import crash_points
from apps.execution.node import crash_points as node_crash_points
from tests.chaos.control import ALONE
from tests.chaos.machine import boot_clock, set_clock
from tests.chaos.schedule import Fault
from tests.chaos.stage import PATIENCE, PATIENCE_STEP_S, STANDBY, NothingToHit, Stage
from tests.services.timeouts import scale_timeout

# The longest that a node may take to be rid of its work, or to be installed.
STEP_WITHIN_S: Final = 120.0
CLOCK_JUMPS_S: Final = (-7200.0, -65.0, 65.0, 7200.0)
# A wish to stop is carried out by web processes.
SERVED_POINTS: Final = tuple(point for point in crash_points.POINTS if point != "stop.asked")
# At the others the process that waits for the work ends, and the result is lost.
SAFE_POINTS: Final = tuple(
    point
    for point in node_crash_points.POINTS
    if point
    not in {
        *("node.launch.starting", "node.launch.created", "node.launch.started"),
        "node.finish.ended",
    }
)


def program_killed(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.control.kill(fault.target)
    try:
        yield fault.lasts_s
    finally:
        stage.control.start(fault.target)


def program_stopped(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.control.pause(fault.target, is_on=True)
    try:
        yield fault.lasts_s
    finally:
        stage.control.pause(fault.target, is_on=False)


def two_beats(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.control.start("beat-2")
    try:
        yield fault.lasts_s
    finally:
        stage.control.kill("beat-2")


def control_away(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    names = [name for name in stage.control.commands if name not in STANDBY]
    for name in names:
        stage.control.kill(name)
    try:
        yield fault.lasts_s
    finally:
        for name in names:
            stage.control.start(name)


def everything_killed(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    """Every program, the database and the broker; all of them are started again at once."""
    names = [name for name in stage.control.commands if name not in STANDBY]
    for name in names:
        stage.control.kill(name)
    stage.redis.kill()
    stage.postgres.kill()
    try:
        yield fault.lasts_s
    finally:
        stage.postgres.start()
        stage.redis.start()
        for name in names:
            stage.control.start(name)


def crash_point(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    """One program alone decides and serves the nodes, until it comes to its step."""
    names = [name for name in stage.control.commands if name.startswith(("worker-", "server-"))]
    for name in names:
        stage.control.kill(name)
    try:
        for point, seconds in (
            (rng.choice(SERVED_POINTS), fault.lasts_s),
            # Nothing had to stop or to give way; work ends all the time.
            ("finish.reported", PATIENCE * PATIENCE_STEP_S),
        ):
            stage.control.kill(ALONE)
            stage.control.start(ALONE, crash_at=point)
            for _ in range(int(seconds / PATIENCE_STEP_S)):
                if stage.control.has_ended(ALONE):
                    return
                yield PATIENCE_STEP_S
        raise NothingToHit
    finally:
        stage.control.kill(ALONE)
        for name in names:
            stage.control.start(name)


def node_crash_point(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    """The next process of the node's helper that comes to a step ends there."""
    path = stage.nodes[fault.target].home / "crash-at"
    try:
        for point, seconds in (
            (rng.choice(SAFE_POINTS), fault.lasts_s),
            ("node.finish.acknowledged", PATIENCE * PATIENCE_STEP_S),
        ):
            with suppress(OSError):
                path.write_text(point)
            for _ in range(int(seconds / PATIENCE_STEP_S)):
                if not path.exists():
                    return
                yield PATIENCE_STEP_S
        raise NothingToHit
    finally:
        path.unlink(missing_ok=True)


def control_clock(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    set_clock(stage.control_clock, rng.choice(CLOCK_JUMPS_S))
    try:
        yield fault.lasts_s
    finally:
        set_clock(stage.control_clock, 0)


def node_removed(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    """Removed with all that it runs, and added again under its name, as administrators do."""
    node = stage.nodes[fault.target]
    # Without a reason it is refused while the node does not answer: nobody says that it is off.
    forced = ["node", "remove", node.name, "--force"]
    added = stage.adding(node)
    failures: list[str] = []

    def remove_and_add() -> None:
        # Other faults go on meanwhile: each step is tried until it is seen.
        for words, is_there in ((forced, False), (added, True)):
            ends_s = boot_clock() + scale_timeout(STEP_WITHIN_S)
            while _is_a_node(stage, node.name) != is_there:
                if boot_clock() > ends_s:
                    failures.append(" ".join(words[:3]))
                    return
                with suppress(AssertionError, subprocess.TimeoutExpired):
                    stage.installation.manage(*words)
                time.sleep(PATIENCE_STEP_S)

    thread = threading.Thread(target=remove_and_add, daemon=True)
    thread.start()
    while thread.is_alive():
        yield PATIENCE_STEP_S
    if failures:
        raise RuntimeError(f"not within {STEP_WITHIN_S:.0f} s: {failures}")


def _is_a_node(stage: Stage, name: str) -> bool:
    """Whether the database has a live row of this name; asked until it answers."""
    select = "SELECT count(*) FROM nodes_node WHERE name = %s AND removed_at IS NULL"
    while True:
        with suppress(psycopg.Error), psycopg.connect(stage.postgres.cluster.url()) as connection:
            row = connection.execute(select, [name]).fetchone()
            return row is not None and bool(row[0])
        time.sleep(PATIENCE_STEP_S)
