"""One run: the schedule is carried out, the work drains, the checker judges."""

import heapq
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psycopg

from tests.chaos import faults as injectors
from tests.chaos import recovery, report
from tests.chaos.checker import Verdict, check
from tests.chaos.fault_classes import BY_NAME
from tests.chaos.history import History, Silence
from tests.chaos.load import Client, planned_tasks
from tests.chaos.machine import boot_clock
from tests.chaos.observation import leftovers, observe, open_tasks
from tests.chaos.recovery import Recovery, Sampler, Span
from tests.chaos.schedule import Fault, make_schedule
from tests.chaos.stage import NothingToHit
from tests.chaos.world import World, opened, target_names
from tests.services.podman import IMAGE
from tests.services.timeouts import scale_timeout

CLEAR_WITHIN_S = 30.0
SAY_EVERY_S = 15.0
BOOK = "from apps.usage.services.sums import usage_book; usage_book(run_s=60)"
NODES = frozenset({"node", "podman-node"})
# Channels of faults that can keep an exchange from coming to its end, or to the database.
CUTTING = frozenset({"process", "net", "sshd", "postgres", "answers", "helper", "disk", "crash"})


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked on the command line."""

    seed: int
    seconds: float
    faults: int
    tasks: int
    containers: int
    podman_nodes: int
    process_nodes: int
    drain_s: float
    names: tuple[str, ...] = ()
    chosen: tuple[Fault, ...] = ()
    keep: Path | None = None
    mean_s: float = 5
    lasts_s: float = 0
    is_small: bool = False
    ignores_sigterm: bool = False
    lease_s: int = 20
    slots: int = 8


@dataclass(slots=True)
class Outcome:
    """How a run went."""

    verdict: Verdict
    injected: dict[str, int]
    text: str

    @property
    def is_good(self) -> bool:
        return not self.verdict.breaches and all(self.injected.values())


@dataclass(slots=True)
class Faults:
    """Carries out a schedule from one thread: who starts processes must outlive them."""

    world: World
    began_s: float
    spans: list[Span] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    late_s: float = 0.0
    _turns: list[tuple[float, int, Fault]] = field(default_factory=list)
    _running: dict[int, tuple[Iterator[float], float]] = field(default_factory=dict)

    def carry_out(self, schedule: Sequence[Fault]) -> None:
        """All of them, each in its time; returns when the last is over."""
        self._turns = [(fault.at_s, n, fault) for n, fault in enumerate(schedule)]
        heapq.heapify(self._turns)
        said_s = 0.0
        while self._turns:
            at_s, number, fault = heapq.heappop(self._turns)
            now_s = boot_clock() - self.began_s
            if at_s > now_s:
                time.sleep(at_s - now_s)
            self.late_s = max(self.late_s, now_s - at_s)
            self._turn(number, fault)
            self.world.stage.control.revive()
            if now_s - said_s > SAY_EVERY_S:
                said_s = now_s
                say(f"{now_s:6.0f} s: {sum(self.injected.values())} faults, {self._work()}")

    def undo(self) -> None:
        """End what is still in force."""
        for running, _ in list(self._running.values()):
            with suppress(Exception):
                running.close()  # type: ignore[attr-defined]  # every injector is a generator
        self._running.clear()

    def _turn(self, number: int, fault: Fault) -> None:
        if number not in self._running:
            self._running[number] = (
                injectors.begin(self.world.stage, fault),
                boot_clock(),
            )
        running, begun_s = self._running[number]
        try:
            wait_s = next(running)
        except (StopIteration, NothingToHit, OSError, RuntimeError, TimeoutError) as end:
            del self._running[number]
            if isinstance(end, StopIteration):
                self.injected[fault.name] += 1
                self.spans.append(Span(fault.name, fault.target, begun_s, boot_clock()))
            elif not isinstance(end, NothingToHit):
                self.failures.append(f"{fault}: {end!r}")
            return
        heapq.heappush(self._turns, (boot_clock() - self.began_s + wait_s, number, fault))

    def _work(self) -> str:
        with suppress(psycopg.Error):
            return ", ".join(open_tasks(self.world.database_url)) or "nothing waits or runs"
        return "the database is away"


def carry_out(plan: Plan) -> Outcome:
    """One whole run."""
    schedule = plan.chosen or make_schedule(
        seed=plan.seed,
        seconds=plan.seconds,
        count=plan.faults,
        targets=target_names(
            podman_nodes=plan.podman_nodes,
            process_nodes=plan.process_nodes,
            is_small=plan.is_small,
        ),
        names=plan.names,
    )
    say("schedule (at:class:target:seconds): " + " ".join(map(str, schedule)))
    began = time.monotonic()
    with opened(
        seed=plan.seed,
        podman_nodes=plan.podman_nodes,
        process_nodes=plan.process_nodes,
        is_small=plan.is_small,
        lease_s=plan.lease_s,
        slots=plan.slots,
        keep=plan.keep,
    ) as world:
        say(f"installation is up after {time.monotonic() - began:.0f} s in {world.folder}")
        return _run(plan, world, schedule)


def _run(plan: Plan, world: World, schedule: Sequence[Fault]) -> Outcome:
    client = Client(
        list(world.webs.values()),
        world.credential,
        planned_tasks(
            seed=plan.seed,
            seconds=plan.seconds,
            count=plan.tasks,
            containers=plan.containers,
            queue_targets=world.queue_targets(IMAGE),
            mean_s=plan.mean_s,
            lasts_s=plan.lasts_s,
            ignores_sigterm=plan.ignores_sigterm,
        ),
        boot_clock(),
        plan.seed,
    )
    sampler = Sampler(world.database_url, world.webs)
    threads = [client.start(), sampler.start()]
    faults = Faults(world, client.began_s)
    try:
        faults.carry_out(schedule)
    finally:
        faults.undo()
    _drain(plan, world, client)
    client.is_over.set()
    sampler.is_over.set()
    for thread in threads:
        thread.join(30)
    # Beat does so each minute; what ended since then is booked now.
    world.stage.installation.manage("shell", "--command", BOOK)
    history = observe(
        History(
            killed=world.stage.killed,
            unwatched=world.stage.unwatched,
            silences=[*world.stage.silences, *silences(faults.spans)],
            accepted=client.accepted,
            responses=client.responses,
        ),
        url=world.database_url,
        nodes=world.stage.nodes.values(),
    )
    return _judged(plan, world, schedule, client, sampler, faults, history)


def silences(spans: Sequence[Span]) -> list[Silence]:
    """Faults that could keep nodes from the control plane: at theirs, or for all at its own."""
    return [
        Silence(
            span.target if BY_NAME[span.name].targets in NODES else "", span.begun_s, span.ended_s
        )
        for span in spans
        if BY_NAME[span.name].channel in CUTTING
    ]


def _judged(
    plan: Plan,
    world: World,
    schedule: Sequence[Fault],
    client: Client,
    sampler: Sampler,
    faults: Faults,
    history: History,
) -> Outcome:
    verdict = check(history)
    found = recovery.recoveries(faults.spans, sampler.signs, until_s=boot_clock())
    injected = {fault.name: faults.injected[fault.name] for fault in schedule}
    text = report.table(
        history=history,
        verdict=verdict,
        injected=injected,
        recovered=found,
        title=f"chaos, seed {plan.seed}, {plan.seconds:.0f} s, {len(world.stage.nodes)} nodes",
    )
    notes = [
        *(f"  refused: {words}" for words in client.refused[:5]),
        *(f"  the run itself failed: {words}" for words in faults.failures),
        *(f"  ended by itself: {name}, {n}" for name, n in world.stage.control.ended),
        f"  the latest fault came {faults.late_s:.1f} s after its time",
        *_slowest(found, client.began_s),
    ]
    if plan.keep is not None:
        plan.keep.mkdir(parents=True, exist_ok=True)
        (plan.keep / "history.json").write_bytes(msgspec.json.encode(history))
    return Outcome(verdict, injected, "\n".join([text, *notes, report.breaches(verdict)]))


def _slowest(found: list[Recovery], began_s: float) -> list[str]:
    slow = sorted(found, key=lambda one: -one.seconds)[:5]
    return [
        f"  slow: {one.seconds:.1f} s after {one.span.ended_s - began_s:.1f} s: {one}"
        for one in slow
    ]


def _drain(plan: Plan, world: World, client: Client) -> None:
    """Wait until every wish was answered, every task has ended and every node is clear."""
    began_s = boot_clock()
    while boot_clock() - began_s < scale_timeout(plan.drain_s):
        world.stage.control.revive()
        with suppress(psycopg.Error):
            if client.is_done and not open_tasks(world.database_url):
                break
        time.sleep(0.5)
    began_s = boot_clock()
    while boot_clock() - began_s < scale_timeout(CLEAR_WITHIN_S):
        if not any(leftovers(node) for node in world.stage.nodes.values()):
            return
        time.sleep(1)


def say(words: str) -> None:
    """One line of progress."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()
