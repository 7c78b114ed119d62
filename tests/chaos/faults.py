"""How each fault is done and undone.

An injector is a generator: what stands before its first `yield` does the fault, each `yield` says
how many seconds to wait, and its end means that the fault is over. Closing it early undoes it.
"""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.control import ControlPlane
from tests.chaos.history import Killed
from tests.chaos.messages import MessageThief
from tests.chaos.nodes import ChaosNode, boot_clock, kill, set_clock
from tests.chaos.processes import attempts_beside, supervisors, variable
from tests.chaos.proxy import CommitProxy
from tests.chaos.schedule import Fault
from tests.chaos.servers import PostgresServer, RedisControl

CLOCK_JUMPS_S: Final = (-7200.0, -65.0, 65.0, 7200.0)
# How long a fault that needs work waits for some to come.
PATIENCE, PATIENCE_STEP_S = 60, 0.5
STANDBY: Final = frozenset({"beat-2"})


@dataclass(slots=True)
class Stage:
    """Everything that a fault can hit.

    Args:
        seed: of the run; what an injector draws depends on it and on the fault alone.
    """

    seed: int
    nodes: dict[str, ChaosNode]
    control: ControlPlane
    postgres: PostgresServer
    redis: RedisControl
    proxy: CommitProxy
    thief: MessageThief
    control_clock: Path
    killed: list[Killed] = field(default_factory=list)
    unwatched: list[Killed] = field(default_factory=list)


class NothingToHit(Exception):
    """The fault found nothing that it could do something to; it does not count."""


Injector = Callable[[Stage, Fault, random.Random], Iterator[float]]


def begin(stage: Stage, fault: Fault) -> Iterator[float]:
    """The injector of a fault, not started yet."""
    return INJECTORS[fault.name](stage, fault, random.Random(f"{stage.seed} {fault}"))


def _program_killed(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.control.kill(fault.target)
    try:
        yield fault.lasts_s
    finally:
        stage.control.start(fault.target)


def _program_stopped(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.control.pause(fault.target, is_on=True)
    try:
        yield fault.lasts_s
    finally:
        stage.control.pause(fault.target, is_on=False)


def _two_beats(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.control.start("beat-2")
    try:
        yield fault.lasts_s
    finally:
        stage.control.kill("beat-2")


def _control_away(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    names = [name for name in stage.control.commands if name not in STANDBY]
    for name in names:
        stage.control.kill(name)
    try:
        yield fault.lasts_s
    finally:
        for name in names:
            stage.control.start(name)


def _partition(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    node = stage.nodes[fault.target]
    node.set_link(is_up=False)
    try:
        yield fault.lasts_s
    finally:
        node.set_link(is_up=True)


def _one_way(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    node = stage.nodes[fault.target]
    chain = "INPUT" if fault.name == "partition-in" else "OUTPUT"
    node.drop(chain, is_on=True)
    try:
        yield fault.lasts_s
    finally:
        node.drop(chain, is_on=False)


def _flap(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    node = stage.nodes[fault.target]
    left_s = fault.lasts_s
    try:
        while left_s > 0:
            for is_up in (False, True):
                node.set_link(is_up=is_up)
                pause_s = min(rng.uniform(0.3, 1.5), max(left_s, 0.05))
                left_s -= pause_s
                yield pause_s
    finally:
        node.set_link(is_up=True)


def _sshd_killed(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    node = stage.nodes[fault.target]
    node.stop_sshd()
    try:
        yield fault.lasts_s
    finally:
        node.start_sshd()


def _host_key(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    node = stage.nodes[fault.target]
    node.stop_sshd()
    node.change_host_key(back=False)
    try:
        node.start_sshd()
        yield fault.lasts_s
    finally:
        node.stop_sshd()
        node.change_host_key(back=True)
        node.start_sshd()


def _banner_hangs(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    node = stage.nodes[fault.target]
    node.hang()
    try:
        yield fault.lasts_s
    finally:
        node.unhang()
        node.start_sshd()


def _reboot(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    node = stage.nodes[fault.target]
    node.power_off()
    try:
        yield fault.lasts_s
    finally:
        node.boot()
        node.start_sshd()


def _work_killed(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    for turn in range(PATIENCE):
        node = _node_with_luck(stage, fault, turn)
        work = sorted(pid for pid in node.pids("job") if variable(pid, "RPM_TASK_ID"))
        if work:
            break
        yield PATIENCE_STEP_S
    else:
        raise NothingToHit
    pid = rng.choice(work)
    task, generation = variable(pid, "RPM_TASK_ID"), variable(pid, "RPM_ATTEMPT")
    # Noted first: the end of the work may be in the books before this process goes on.
    stage.killed.append(Killed(task, int(generation or 0), boot_clock()))
    kill(pid)


def _monitor_killed(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    """The container's monitor, or one of the helper's own processes beside the work."""
    for turn in range(PATIENCE):
        node = _node_with_luck(stage, fault, turn)
        candidates = sorted([*node.pids("conmon"), *supervisors(node)])
        beside = {pid: members for pid in candidates if (members := attempts_beside(pid))}
        if beside:
            pid = rng.choice(list(beside))
            stage.unwatched += [Killed(*one, boot_clock()) for one in sorted(beside[pid])]
            kill(pid)
            return
        yield PATIENCE_STEP_S
    raise NothingToHit


def _node_with_luck(stage: Stage, fault: Fault, turn: int) -> ChaosNode:
    """The fault's own node; where nothing runs there for a while, the others in their turn."""
    names = list(stage.nodes)
    first = names.index(fault.target)
    return stage.nodes[names[(first + turn // 4) % len(names)]]


def _runtime_missing(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    node = stage.nodes[fault.target]
    while not node.is_up:
        yield PATIENCE_STEP_S
    node.hide_runtime(is_hidden=True)
    try:
        yield fault.lasts_s
    finally:
        if node.is_up:
            node.hide_runtime(is_hidden=False)


def _node_disk_full(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    node = stage.nodes[fault.target]
    node.fill_disk(is_full=True)
    try:
        yield fault.lasts_s
    finally:
        node.fill_disk(is_full=False)


def _node_clock(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    node = stage.nodes[fault.target]
    node.set_clock(rng.choice(CLOCK_JUMPS_S))
    try:
        yield fault.lasts_s
    finally:
        node.set_clock(0)


def _control_clock(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    set_clock(stage.control_clock, rng.choice(CLOCK_JUMPS_S))
    try:
        yield fault.lasts_s
    finally:
        set_clock(stage.control_clock, 0)


def _redis_killed(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.redis.kill()
    try:
        yield fault.lasts_s
    finally:
        stage.redis.start()


def _redis_flushed(stage: Stage, _fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.redis.flush()
    yield 0


def _redis_paused(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.redis.pause(is_on=True)
    try:
        yield fault.lasts_s
    finally:
        stage.redis.pause(is_on=False)


def _postgres_restarted(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.postgres.ask_to_end()
    try:
        for _ in range(PATIENCE):
            if not stage.postgres.is_up:
                break
            yield PATIENCE_STEP_S / 5
        yield fault.lasts_s
    finally:
        stage.postgres.start()


def _postgres_crashed(stage: Stage, _fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.postgres.crash()
    yield 0


def _postgres_disk_full(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    stage.postgres.fill_disk(is_full=True)
    try:
        yield fault.lasts_s
    finally:
        stage.postgres.fill_disk(is_full=False)
        # Without room for its log it may have given up; an administrator starts it again.
        stage.postgres.start()


def _answers_lost(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    before = stage.proxy.lost
    stage.proxy.is_losing = True
    try:
        yield fault.lasts_s
        # Some commit has to lose its answer, else it was no fault.
        for _ in range(50):
            if stage.proxy.lost > before:
                return
            yield 0.2
        raise NothingToHit
    finally:
        stage.proxy.is_losing = False


def _messages_held(stage: Stage, fault: Fault, rng: random.Random) -> Iterator[float]:
    """Taken away as they come, given back together: late, and in another order if asked."""
    given: list[int] = []

    def take_and_give() -> None:
        held: list[bytes] = []
        while not over.is_set():
            held.extend(stage.thief.take(seconds=0.2))
        # The workers may have been faster with all of them: then old ones are the late ones.
        held = held or stage.thief.kept[-10:]
        if fault.name == "messages-shuffled":
            rng.shuffle(held)
        given.append(stage.thief.give(held))

    over = threading.Event()
    # Redis may be paused meanwhile: waiting for it must not hold the other faults up.
    thread = threading.Thread(target=take_and_give, daemon=True)
    thread.start()
    try:
        yield fault.lasts_s
    finally:
        over.set()
    while thread.is_alive():
        yield 0.1
    if not sum(given):
        raise NothingToHit


def _messages_doubled(stage: Stage, _fault: Fault, rng: random.Random) -> Iterator[float]:
    for _ in range(PATIENCE // 3):
        if not stage.thief.kept:
            stage.thief.take(seconds=0.2)
        if stage.thief.kept and stage.thief.double(rng):
            return
        yield PATIENCE_STEP_S
    raise NothingToHit


INJECTORS: Final[dict[str, Injector]] = {
    "web-kill": _program_killed,
    "web-stop": _program_stopped,
    "worker-kill": _program_killed,
    "worker-stop": _program_stopped,
    "server-kill": _program_killed,
    "server-stop": _program_stopped,
    "beat-kill": _program_killed,
    "beat-stop": _program_stopped,
    "two-beats": _two_beats,
    "no-beat": _program_killed,
    "control-away": _control_away,
    "partition": _partition,
    "partition-in": _one_way,
    "partition-out": _one_way,
    "flap": _flap,
    "sshd-kill": _sshd_killed,
    "host-key": _host_key,
    "banner-hang": _banner_hangs,
    "reboot": _reboot,
    "work-kill": _work_killed,
    "monitor-kill": _monitor_killed,
    "runtime-missing": _runtime_missing,
    "node-disk-full": _node_disk_full,
    "node-clock": _node_clock,
    "control-clock": _control_clock,
    "redis-kill": _redis_killed,
    "redis-flush": _redis_flushed,
    "redis-pause": _redis_paused,
    "postgres-restart": _postgres_restarted,
    "postgres-crash": _postgres_crashed,
    "postgres-disk-full": _postgres_disk_full,
    "commit-answer-lost": _answers_lost,
    "messages-late": _messages_held,
    "messages-doubled": _messages_doubled,
    "messages-shuffled": _messages_held,
}
