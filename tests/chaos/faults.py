"""How each fault is done and undone.

An injector is a generator: what stands before its first `yield` does the fault, each `yield` says
how many seconds to wait, and its end means that the fault is over. Closing it early undoes it.
"""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Final

from tests.chaos import control_faults, work_faults
from tests.chaos.history import Silence
from tests.chaos.machine import boot_clock
from tests.chaos.processes import variable
from tests.chaos.schedule import Fault
from tests.chaos.stage import PATIENCE, PATIENCE_STEP_S, NothingToHit, Stage

Injector = Callable[[Stage, Fault, random.Random], Iterator[float]]


def begin(stage: Stage, fault: Fault) -> Iterator[float]:
    """The injector of a fault, not started yet."""
    return INJECTORS[fault.name](stage, fault, random.Random(f"{stage.seed} {fault}"))


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


def _node_lost(stage: Stage, fault: Fault, _rng: random.Random) -> Iterator[float]:
    """Out of reach for longer than its leases last, with work that has one."""
    then = fault.name.rpartition("-")[2]
    for turn in range(PATIENCE):
        node = work_faults.node_with_luck(stage, fault, turn)
        if any(variable(pid, "CHAOS_ON_LOSS") == then for pid in node.pids("job")):
            break
        yield PATIENCE_STEP_S
    else:
        raise NothingToHit
    node.set_link(is_up=False)
    begun_s = boot_clock()
    try:
        yield fault.lasts_s
    finally:
        node.set_link(is_up=True)
        # Luck may have chosen another node than the one that the fault was for.
        stage.silences.append(Silence(node.name, begun_s, boot_clock()))


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
    node.set_clock(rng.choice(control_faults.CLOCK_JUMPS_S))
    try:
        yield fault.lasts_s
    finally:
        node.set_clock(0)


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
        # Without space for its log it may have given up; an administrator starts it again.
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
    """Removed as they come, given back together: late, and in another order if asked."""
    given: list[int] = []

    def take_and_give() -> None:
        held: list[bytes] = []
        while not over.is_set():
            held.extend(stage.interceptor.take(seconds=0.2))
        # The workers may have been faster with all of them: then old ones are the late ones.
        held = held or stage.interceptor.kept[-10:]
        if fault.name == "messages-shuffled":
            rng.shuffle(held)
        given.append(stage.interceptor.give(held))

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
        if not stage.interceptor.kept:
            stage.interceptor.take(seconds=0.2)
        if stage.interceptor.kept and stage.interceptor.double(rng):
            return
        yield PATIENCE_STEP_S
    raise NothingToHit


INJECTORS: Final[dict[str, Injector]] = {
    "web-kill": control_faults.program_killed,
    "web-stop": control_faults.program_stopped,
    "worker-kill": control_faults.program_killed,
    "worker-stop": control_faults.program_stopped,
    "server-kill": control_faults.program_killed,
    "server-stop": control_faults.program_stopped,
    "beat-kill": control_faults.program_killed,
    "beat-stop": control_faults.program_stopped,
    "two-beats": control_faults.two_beats,
    "no-beat": control_faults.program_killed,
    "control-away": control_faults.control_away,
    "everything-kill": control_faults.everything_killed,
    "crash-point": control_faults.crash_point,
    "node-crash-point": control_faults.node_crash_point,
    "partition": _partition,
    "partition-in": _one_way,
    "partition-out": _one_way,
    "flap": _flap,
    "node-lost-requeue": _node_lost,
    "node-lost-fail": _node_lost,
    "sshd-kill": _sshd_killed,
    "host-key": _host_key,
    "banner-hang": _banner_hangs,
    "reboot": _reboot,
    "work-kill": work_faults.work_killed,
    "monitor-kill": work_faults.monitor_killed,
    "work-stop": work_faults.work_stopped,
    "helper-stop": work_faults.helper_stopped,
    "launch-repeated": work_faults.launch_repeated,
    "runtime-missing": _runtime_missing,
    "node-disk-full": _node_disk_full,
    "node-clock": _node_clock,
    "control-clock": control_faults.control_clock,
    "node-removed": control_faults.node_removed,
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
