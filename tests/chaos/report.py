"""The one table that a run prints."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from tests.chaos.checker import KINDS, Verdict
from tests.chaos.fault_classes import CLASSES
from tests.chaos.history import History, ProcessLife
from tests.chaos.recovery import Recovery, summary

WORDS = 12


def table(
    *,
    history: History,
    verdict: Verdict,
    injected: Mapping[str, int],
    recovered: Sequence[Recovery],
    title: str,
) -> str:
    """Faults by class, tasks, what was broken, re-runs, and how long recovery took."""
    faults = [
        (f"fault {name}", f"{injected[name]:>4}{_times(name, recovered)}")
        for name in known(injected)
    ]
    states = Counter(row.state for row in history.tasks)
    reruns = Counter(reason for reason, _ in verdict.reruns)
    median_s, worst_s, which = summary(recovered)
    outcome = [
        ("faults", str(sum(injected.values()))),
        ("tasks accepted", str(len({one.task for one in history.accepted}))),
        ("tasks by state", ", ".join(f"{state} {n}" for state, n in sorted(states.items()))),
        ("attempts", str(len(history.attempts))),
        ("starts of work", str(sum(not life.is_child for life in history.lives))),
        *((kind, str(verdict.count(kind))) for kind in KINDS),
        ("re-run after node loss", str(verdict.reruns_for("node loss"))),
        ("running elsewhere", _elsewhere(history)),
        ("re-run: preempted, retry", f"{reruns['preempted']}, {reruns['retry']}"),
        ("results unknown, monitor killed", str(verdict.unknown_results)),
        ("answers over HTTP", _answers(history)),
        ("time to recover", f"median {median_s:.1f} s, worst {worst_s:.1f} s ({which})"),
    ]
    lines = [title, *_columns([*faults, *outcome])]
    return "\n".join(lines)


def breaches(verdict: Verdict) -> str:
    """The first of each kind, in words."""
    lines = []
    for kind in KINDS:
        found = [breach.words for breach in verdict.breaches if breach.kind == kind]
        lines += [f"  {kind}: {words}" for words in found[:WORDS]]
        if len(found) > WORDS:
            lines.append(f"  {kind}: and {len(found) - WORDS} more")
    return "\n".join(lines)


def known(injected: Mapping[str, int]) -> list[str]:
    """Classes in the order of their list, those that this run could not do left out."""
    return [one.name for one in CLASSES if one.name in injected]


def _times(name: str, recovered: Sequence[Recovery]) -> str:
    """How long it took to recover from this class."""
    own = [one for one in recovered if one.span.name == name]
    if not own:
        return ""
    median_s, worst_s, _ = summary(own)
    return f"   recovered in {median_s:.1f} s, at worst {worst_s:.1f} s"


def _elsewhere(history: History) -> str:
    """How long after its node fell silent work with a lease ran on another one."""
    took = sorted(seconds_elsewhere(history))
    if not took:
        return "-"
    return f"{median(took):.1f} s after the silence began (median), {took[-1]:.1f} s at worst"


def seconds_elsewhere(history: History) -> Iterator[float]:
    """For each pair of starts on two nodes: from the silence that cut the first one short."""
    starts: dict[tuple[str, int], list[ProcessLife]] = defaultdict(list)
    for life in sorted(history.lives, key=lambda life: life.started_s):
        if not life.is_child:
            starts[life.task, life.rank].append(life)
    for lives in starts.values():
        for earlier, later in pairwise(lives):
            for silence in history.silences:
                is_cut = silence.from_s <= earlier.last_s and earlier.started_s <= silence.from_s
                is_before = silence.from_s < later.started_s <= silence.until_s
                if silence.node == earlier.node != later.node and is_cut and is_before:
                    yield later.started_s - silence.from_s


def _answers(history: History) -> str:
    counts = Counter(answer.status for answer in history.responses)
    return ", ".join(f"{status or 'none'}: {n}" for status, n in sorted(counts.items()))


def _columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name.ljust(width)}  {value}" for name, value in rows]
