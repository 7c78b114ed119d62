"""Which fault happens when and to whom: pure, and the same for the same seed."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.fault_classes import BY_NAME, CLASSES, FaultClass

# Time at the beginning without faults, so that there is work to hit.
QUIET_S = 3.0
TRIES = 400


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault, in seconds since the run began."""

    at_s: float
    name: str
    target: str
    lasts_s: float

    @property
    def until_s(self) -> float:
        return self.at_s + self.lasts_s

    def __str__(self) -> str:
        return f"{self.at_s:.2f}:{self.name}:{self.target}:{self.lasts_s:.2f}"


def parse_fault(text: str) -> Fault:
    """The fault that prints as `text`.

    Raises:
        ValueError: it is no fault.
    """
    at_s, name, target, lasts_s = text.split(":")
    if name not in BY_NAME:
        raise ValueError(f"{name!r} is no class of faults")
    return Fault(float(at_s), name, target, float(lasts_s))


def make_schedule(
    *,
    seed: int,
    seconds: float,
    count: int,
    targets: Mapping[str, Sequence[str]],
    names: Iterable[str] = (),
) -> tuple[Fault, ...]:
    """Draw `count` faults over the run, every class at least once.

    Faults overlap freely, but two of one channel never hit one target at once: a server that is
    gone cannot be stopped.

    Args:
        targets: kind of target -> names of those there are; classes without one are left out.
        names: only these classes; all when empty.

    Raises:
        ValueError: there is no time for so many.
    """
    rng = random.Random(seed)
    chosen = [one for one in CLASSES if (not names or one.name in names) and targets[one.targets]]
    # What hits everything of its kind needs the most time, so it goes first.
    once = sorted(chosen[:count], key=lambda one: one.targets != "control")
    more = rng.choices(chosen, [one.weight for one in chosen], k=count - len(once))
    faults: list[Fault] = []
    for number, one in enumerate([*once, *more]):
        fault = _placed(one, rng, seconds, targets, faults)
        # Where there is no time left for a class, another one that has some takes its turn.
        others = iter(rng.sample(chosen, len(chosen)) if number >= len(once) else [])
        while fault is None:
            other = next(others, None)
            if other is None:
                raise ValueError(f"no time for another {one.name} in {seconds:.0f} s")
            fault = _placed(other, rng, seconds, targets, faults)
        faults.append(fault)
    return tuple(sorted(faults))


def make_flaps(*, seed: int, count: int, nodes: Sequence[str]) -> tuple[Fault, ...]:
    """Every node loses its cable for 0.3 to 4 s, again and again, all nodes at once."""
    rng = random.Random(f"{seed} flaps")
    until = dict.fromkeys(nodes, QUIET_S)
    faults = []
    for number in range(count):
        node = nodes[number % len(nodes)]
        lasts_s = round(rng.uniform(0.3, 4), 2)
        faults.append(Fault(round(until[node], 2), "partition", node, lasts_s))
        until[node] += lasts_s + rng.uniform(0.3, 1)
    return tuple(sorted(faults))


def make_repeated(name: str, *, count: int, every_s: float, target: str) -> tuple[Fault, ...]:
    """The same fault again and again, with time between to recover."""
    return tuple(Fault(QUIET_S + every_s * turn, name, target, 0) for turn in range(count))


def counts(faults: Iterable[Fault]) -> Counter[str]:
    """How often each class is drawn."""
    return Counter(fault.name for fault in faults)


def _placed(
    one: FaultClass,
    rng: random.Random,
    seconds: float,
    targets: Mapping[str, Sequence[str]],
    others: Sequence[Fault],
) -> Fault | None:
    """A free place for it, None where there is none; shorter and shorter where the run is full."""
    for turn in range(TRIES):
        shrink = 1 - turn / TRIES
        longest = max(one.shortest_s, min(one.longest_s, seconds / 4) * shrink)
        lasts = round(rng.uniform(one.shortest_s, longest), 2)
        at = round(rng.uniform(QUIET_S, max(QUIET_S, seconds - lasts)), 2)
        fault = Fault(at, one.name, rng.choice(list(targets[one.targets])), lasts)
        if not any(_collide(fault, other, targets) for other in others):
            return fault
    return None


def _collide(first: Fault, second: Fault, targets: Mapping[str, Sequence[str]]) -> bool:
    # What was hit gets a moment to come back, else the next fault of its kind would find nothing.
    apart = first.until_s + 0.5 < second.at_s or second.until_s + 0.5 < first.at_s
    if apart or BY_NAME[first.name].channel != BY_NAME[second.name].channel:
        return False
    everything = set(targets["control"])
    return first.target == second.target or bool(everything & {first.target, second.target})
