"""A report of usage as its page shows it: texts, and the geometry of the chart."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from apps.dashboard.cards.chart_parts import (
    HEIGHT,
    REST,
    BarPart,
    StepBar,
    Tick,
    scale_top,
    series_kinds,
)
from apps.dashboard.cards.words import duration_text
from apps.tasks.lifecycle.states import AttemptTier
from apps.tasks.models.gpu_use import IDLE_PERCENT
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.rates import cost_of
from apps.usage.selectors.report import PER_GPU_H, Reserved, UsageLine, UsageReport, UsageSums

NONE = "–"
# Days that have a text below them at most.
LABELS = 10
# A period that had almost nothing before would have a change in millions.
MOST_CHANGE = 999
# Deeper lines are indented as far.
DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure and how it has changed since the period before; empty where that was nothing."""

    text: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class LineRow:
    """One line of the table, its figures in the order of `UsageTable.heads`.

    `href` is that of its page or its tasks; empty where it has none.
    """

    label: str
    href: str
    depth: int
    kind: str
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True)
class UsageChart:
    """GPU hours by day or hour, stacked by line; `rows` are its figures with their time."""

    bars: tuple[StepBar, ...]
    ticks: tuple[Tick, ...]
    series: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class UsageTable:
    heads: tuple[str, ...]
    rows: tuple[LineRow, ...]
    total: LineRow


def hours_text(held: int) -> str:
    """GPU hours as people read them: one decimal below ten."""
    hours = held / PER_GPU_H
    return f"{hours:,.1f}".removesuffix(".0") if hours < 10 else f"{hours:,.0f}"


def change_text(now: float, before: float) -> str:
    """`+12 %` from the period before; empty where there was nothing then."""
    if not before:
        return ""
    share = round((now - before) / before * 100)
    if share > MOST_CHANGE:
        return f"over +{MOST_CHANGE} %"
    return f"{'+' if share > 0 else '−' if share < 0 else ''}{abs(share)} %"


def totals(report: UsageReport) -> list[tuple[str, str, str]]:
    """Name, figure and remark of each figure above the chart."""
    total, before = report.total, report.before
    change = change_text(total["held"], before["held"])
    over_quota = total.tiers[AttemptTier.OVER_QUOTA]
    figures = [
        ("GPU hours held", hours_text(total["held"]), _from_before(change, report)),
        ("Lost", f"{hours_text(total['lost'])} h", "work since the last checkpoint"),
        ("Attempts admitted", f"{total['admitted']:,}", f"{total['preempted']:,} preempted"),
        ("Attempts ended", f"{total['ended']:,}", f"{total['failed']:,} failed"),
        ("Wait, mean", _wait(total), f"95 % waited at most {_wait_most(total)}"),
        ("GPU use, mean", _use(total), _measured(total)),
        ("Held but idle", _idle(total), _idle_share(total)),
    ]
    if report.reserved is not None:
        figures.append(_reserved_figure(report.reserved))
    if report.currency:
        cost = change_text(total["cost"], before["cost"])
        figures.append(("Cost", _cost(total, report), cost and f"{cost} from the period before"))
    if report.by.has_pools and total["held"]:
        share = round(over_quota / total["held"] * 100)
        figures.insert(
            1, ("Over quota", f"{hours_text(over_quota)} h", f"{share} % of what was held")
        )
    return figures


def _reserved_figure(reserved: Reserved) -> tuple[str, str, str]:
    share = round(reserved.unused / reserved.held * 100)
    return ("Reserved, unused", f"{hours_text(reserved.unused)} h", f"{share} % of reservations")


def _from_before(change: str, report: UsageReport) -> str:
    if not change:
        return "nothing in the period before"
    open_day = "" if report.period.is_over else "; today is not over"
    return f"{change} from the period before{open_day}"


def _use(sums: UsageSums) -> str:
    """The mean utilisation where it was measured: `63 %`."""
    return f"{round(sums['used'] / sums['known'] * 100)} %" if sums["known"] else NONE


def _measured(sums: UsageSums) -> str:
    if not sums["known"]:
        return "no GPU reported it"
    # Held time is exact, samples can be a little later.
    share = min(round(sums["known"] / sums["held"] * 100), 100) if sums["held"] else 100
    return f"measured in {share} % of the time held"


def _idle(sums: UsageSums) -> str:
    return f"{hours_text(sums['idle'])} h" if sums["known"] else NONE


def _idle_share(sums: UsageSums) -> str:
    if not sums["known"]:
        return "unknown"
    share = round(sums["idle"] / sums["known"] * 100)
    return f"{share} % of what was measured: GPU use below {IDLE_PERCENT} %"


def _cost(sums: UsageSums, report: UsageReport) -> str:
    return f"{cost_of(sums['cost']):,.2f} {report.currency}"


def _wait(sums: UsageSums) -> str:
    return NONE if sums.waited_s is None else duration_text(sums.waited_s)


def _wait_most(sums: UsageSums) -> str:
    """Within which time 95 % of the attempts were admitted: `15 min`, or `over a day`."""
    most_s = sums.waited_at_most_s(0.95)
    if most_s is None:
        return NONE
    return "over a day" if most_s == float("inf") else duration_text(most_s)


# --- the table -------------------------------------------------------------------------------


def table_of(report: UsageReport, links: Mapping[Any, str]) -> UsageTable:
    """Lines in their order with a total. Tiers are known by policy, pool and model only.

    Args:
        links: addresses by the key of a line, of those that have one.
    """
    has_tiers = report.by.has_pools and report.by is not UsageGroup.TIER
    tiers = tuple(AttemptTier.choices) if has_tiers else ()
    heads = (
        "GPU hours",
        *(str(label) for _, label in tiers),
        *(["Reserved, unused"] if report.reserved is not None else []),
        "Lost",
        "GPU use",
        "Idle",
        "Admitted",
        "Preempted",
        "Failed",
    )
    kinds = _kinds(report.lines)
    rows = tuple(
        LineRow(
            one.label,
            links.get(one.key, ""),
            min(one.depth, DEEPEST),
            kinds.get(one.key, ""),
            _measures(one, tiers, report),
        )
        for one in report.lines
    )
    everything = UsageLine(None, "Total", report.total, report.before, reserved=report.reserved)
    total = LineRow("Total", "", 0, "", _measures(everything, tiers, report))
    if report.currency:
        heads = (*heads, f"Cost, {report.currency}")
    return UsageTable((*heads, "Wait, mean", "95 % waited at most"), rows, total)


def _measures(
    line: UsageLine, tiers: Iterable[tuple[str, str]], report: UsageReport
) -> tuple[Measure, ...]:
    now, before = line.sums, line.before
    hours = [
        (now["held"], before["held"]),
        *((now.tiers[tier], before.tiers[tier]) for tier, _ in tiers),
    ]
    counts = [(now[name], before[name]) for name in ("admitted", "preempted", "failed")]
    return (
        *(_hours(a, b) for a, b in hours),
        *([_unused(line)] if report.reserved is not None else []),
        _hours(now["lost"], before["lost"]),
        Measure(_use(now)),
        Measure(hours_text(now["idle"]) if now["known"] else NONE),
        *(Measure(f"{a:,}" if a else NONE, change_text(a, b)) for a, b in counts),
        *_costs(line, report),
        Measure(_wait(now), change_text(now.waited_s or 0, before.waited_s or 0)),
        Measure(_wait_most(now)),
    )


def _hours(now: int, before: int) -> Measure:
    return Measure(hours_text(now) if now else NONE, change_text(now, before))


def _unused(line: UsageLine) -> Measure:
    """Of what was reserved."""
    reserved = line.reserved
    return Measure(hours_text(reserved.unused) if reserved and reserved.held else NONE)


def _costs(line: UsageLine, report: UsageReport) -> Iterable[Measure]:
    if report.currency:
        now, before = line.sums["cost"], line.before["cost"]
        yield Measure(f"{cost_of(now):,.2f}" if now else NONE, change_text(now, before))


# --- the chart -------------------------------------------------------------------------------


def chart_of(report: UsageReport) -> UsageChart:
    """The largest lines have a colour each, the others one together."""
    kinds = _kinds(report.lines)
    tops = _stacked_lines(report.lines)
    coloured = [one for one in tops if one.key in kinds]
    rest = UsageSums()
    for one in tops[len(coloured) :]:
        rest.add_all(one.sums)
    stacked = [(one.label, kinds[one.key], one.sums) for one in coloured]
    if rest["held"]:
        stacked.append(("Smaller lines", REST, rest))
    count = (report.period.end - report.period.start) // report.step
    steps = [report.period.start + number * report.step for number in range(count)]
    names = _HOUR if report.step < timedelta(days=1) else _DAY
    top = scale_top(max(report.total.steps[at] for at in steps), unit=PER_GPU_H)
    return UsageChart(
        bars=tuple(_bar(number, steps, names, stacked, top) for number in range(count)),
        ticks=tuple(
            Tick(round(HEIGHT * (1 - at / 4), 1), hours_text(top * at // 4)) for at in range(5)
        ),
        series=tuple((label, kind) for label, kind, _ in stacked),
        rows=tuple(
            (names.long(at), tuple(hours_text(s.steps[at]) for *_, s in stacked)) for at in steps
        ),
    )


def _stacked_lines(lines: Sequence[UsageLine]) -> list[UsageLine]:
    """Those that together are everything: the policies below a single top one, or all tops."""
    tops = [one for one in lines if one.depth == 0 and one.sums["held"]]
    below = [one for one in lines if one.depth == 1 and one.sums["held"]]
    if len(tops) > 1 or not below:
        return tops
    (top,) = tops
    own = UsageSums()
    own.add_all(top.sums)
    for one in below:
        own.add_all(one.sums, sign=-1)
    parts = [*below, UsageLine(top.key, f"{top.label} itself", own, UsageSums())]
    return [one for one in parts if one.sums["held"]]


def _kinds(lines: Sequence[UsageLine]) -> dict[Any, str]:
    """The colours of the largest lines by their key."""
    return series_kinds([one.key for one in _stacked_lines(lines)])


def _bar(
    number: int,
    steps: Sequence[datetime],
    names: "_StepNames",
    stacked: Sequence[tuple[str, str, UsageSums]],
    top: int,
) -> StepBar:
    at, width = steps[number], 100 / len(steps)
    parts, y = [], float(HEIGHT)
    for _, kind, sums in stacked:
        height = round(HEIGHT * sums.steps[at] / top, 2)
        if height:
            y = round(y - height, 2)
            parts.append(BarPart(kind, y, height))
    figures = [f"{label} {hours_text(s.steps[at])} h" for label, _, s in stacked if s.steps[at]]
    every = -(-len(steps) // LABELS)
    return StepBar(
        x=f"{width * (number + 0.15):.3f}%",
        width=f"{width * 0.7:.3f}%",
        middle=f"{width * (number + 0.5):.3f}%",
        text=names.short(at) if number % every == 0 else "",
        label=f"{names.long(at)}: {', '.join(figures) or 'nothing held'}",
        parts=tuple(parts),
    )


@dataclass(frozen=True, slots=True)
class _StepNames:
    """How a day or an hour is called below its bar, and in full."""

    short: Callable[[datetime], str]
    long: Callable[[datetime], str]


_DAY = _StepNames(lambda at: f"{at.day} {at:%b}", lambda at: f"{at.day} {at:%b %Y}")
_HOUR = _StepNames(
    lambda at: f"{at:%H:%M}" if at.hour else f"{at.day} {at:%b}",
    lambda at: f"{at.day} {at:%b %Y, %H:%M}",
)
