"""The chart of the overview: GPUs held over time, stacked by policy, tier or pool."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self
from urllib.parse import parse_qs, urlencode
from zoneinfo import ZoneInfo

from django.utils import timezone

from apps.access.selectors import policies_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.units import MILLI, milli_text
from apps.dashboard.cards.chart_parts import (
    HEIGHT,
    REST,
    SERIES,
    StepBar,
    Tick,
    scale_top,
    series_kinds,
)
from apps.dashboard.cards.sparklines import span_words
from apps.dashboard.cards.time_axis import TimeMark, time_marks
from apps.dashboard.live import reader_zone
from apps.nodes.selectors import capacity_by_pool
from apps.policies.models import Policy, Pool
from apps.tasks.lifecycle.states import AttemptTier
from apps.usage.selectors.labels import Labels, UsageGroup, labels_of
from apps.usage.selectors.report import HIDDEN
from apps.usage.selectors.usage_history import HOURS, SPANS, STEPS, SplitHistory, usage_history_by
from apps.usage.selectors.waiting_history import waiting_history

SPAN_WORDS = {3: "3 h", HOURS: "24 h", 7 * 24: "7 d", 30 * 24: "30 d"}
GROUP_WORDS = {UsageGroup.POLICY: "Policy", UsageGroup.TIER: "Tier", UsageGroup.POOL: "Pool"}
# The stacking order of tiers with their colours; what is over quota is hatched.
OVER = "over"
# However much waits, the scale ends at so many times what is held or there.
MOST_DEMAND = 4
_TIERS = {
    AttemptTier.RESERVED: "use",
    AttemptTier.BORROWED: "profile",
    AttemptTier.OVER_QUOTA: OVER,
}


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """What the links of the chart ask for; anything else is a day by policy."""

    hours: int = HOURS
    by: UsageGroup = UsageGroup.POLICY

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string such as `hours=168&by=tier`."""
        given = {key: values[-1] for key, values in parse_qs(query).items()}
        hours = next((one for one in SPANS if str(one) == given.get("hours")), HOURS)
        by = next((one for one in GROUP_WORDS if one == given.get("by")), UsageGroup.POLICY)
        return cls(hours, by)

    def spans(self) -> list[tuple[str, str, bool]]:
        """Label and query of each span, and whether it is this one."""
        return [
            (words, replace(self, hours=hours).query(), hours == self.hours)
            for hours, words in SPAN_WORDS.items()
        ]

    def groups(self, *, has_pools: bool) -> list[tuple[str, str, bool]]:
        """The same of what it is stacked by; pools for those who see pools."""
        return [
            (words, replace(self, by=by).query(), by == self.by)
            for by, words in GROUP_WORDS.items()
            if has_pools or by is not UsageGroup.POOL
        ]

    @property
    def refresh_s(self) -> int:
        """How often the page asks again: a few times while a step of the chart passes."""
        return max(60, self.hours * 3600 // STEPS // 5)

    def query(self) -> str:
        return urlencode({"hours": self.hours, "by": self.by.value})


@dataclass(frozen=True, slots=True)
class Series:
    """What is stacked: thousandths of GPU per step."""

    label: str
    kind: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Area:
    """A series as it is drawn, one unit of x per step, y in pixels from the top."""

    kind: str
    area: str
    line: str


@dataclass(frozen=True, slots=True)
class HistoryChart:
    """`steps` have a title each; `rows` are the figures, in the order of `series`, and what waited.

    `demand` is the line of what was held and waited for; empty where nothing waited.
    """

    areas: tuple[Area, ...]
    demand: str
    steps: tuple[StepBar, ...]
    ticks: tuple[Tick, ...]
    marks: tuple[TimeMark, ...]
    series: tuple[Series, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    capacity: Tick | None
    span: str
    mean: str
    highest: str
    zone: str

    @property
    def unit(self) -> str:
        """The width of a step in parts of all."""
        return f"{1 / len(self.steps):.6f}"

    @property
    def label(self) -> str:
        """What a screen reader hears in place of the picture."""
        capacity = f", capacity now {self.capacity.text}" if self.capacity else ""
        return (
            f"GPUs held, {self.span}: mean {self.mean}, highest {self.highest}{capacity}. "
            "The table below has the figures."
        )


def load_history_chart(
    user: User, wanted: HistoryQuery, pools: Sequence[Pool]
) -> HistoryChart | None:
    """Of the policies that the person sees; None where these held nothing.

    Args:
        pools: those that the person sees.
    """
    now = timezone.now()
    # Administrators see what removed policies held, too.
    seen = Policy.objects.all() if is_admin(user) else policies_visible_to(user)
    policies = list(seen.order_by().values_list("pk", flat=True))
    history = usage_history_by(wanted.by, policies, until=now, hours=wanted.hours)
    waiting = waiting_history(policies, began=history.began, until=now, steps=len(history.at))
    labels = labels_of(wanted.by, user, history.values)
    series = series_of(wanted.by, history.values, labels)
    usable = sum(one.usable_gpu for one in capacity_by_pool(pools).values()) if pools else None
    return history_chart(
        history, series, waiting, usable, hours=wanted.hours, zone=reader_zone(user)
    )


# --- what is stacked ---------------------------------------------------------------------------


def series_of(
    by: UsageGroup, values: Mapping[Any, Sequence[int]], labels: Labels
) -> tuple[Series, ...]:
    """The lowest first: tiers in their order, else the largest, the small ones together."""
    if by is UsageGroup.TIER:
        tiers = [
            (labels[tier][0], kind, values[tier]) for tier, kind in _TIERS.items() if tier in values
        ]
        rest = [row for tier, row in values.items() if tier not in _TIERS]
        tiers += [("Not recorded", REST, _total(rest))] if rest else []
        return tuple(Series(label, kind, tuple(row)) for label, kind, row in tiers)
    groups: dict[Any, list[Sequence[int]]] = defaultdict(list)
    names = (
        policy_groups(labels)
        if by is UsageGroup.POLICY
        else {key: (key, label) for key, (label, _) in labels.items()}
    )
    words = {None: HIDDEN}
    for key, row in values.items():
        group, words[group] = names.get(key, (None, HIDDEN))
        groups[group].append(row)
    rows = sorted(
        ((group, _total(found)) for group, found in groups.items()),
        key=lambda one: (-sum(one[1]), str(one[0])),
    )
    rows = [(group, row) for group, row in rows if any(row)]
    shown, small = rows[: len(SERIES)], rows[len(SERIES) :]
    kinds = series_kinds([group for group, _ in shown])
    found = [Series(words[group], kinds[group], row) for group, row in shown]
    if small:
        label = "Smaller policies" if by is UsageGroup.POLICY else "Smaller pools"
        found.append(Series(label, REST, _total([row for _, row in small])))
    return tuple(found)


def policy_groups(labels: Labels) -> dict[Any, tuple[Any, str]]:
    """Per policy its group, and the group's name: the top ones, or those below a single top."""
    lines = {key: _line(key, labels) for key in labels}
    tops = {line[-1] for line in lines.values()}
    if len(tops) > 1 or not any(len(line) > 1 for line in lines.values()):
        return {key: (line[-1], labels[line[-1]][0]) for key, line in lines.items()}
    return {
        key: (line[-2], labels[line[-2]][0]) if len(line) > 1 else (key, f"{labels[key][0]} itself")
        for key, line in lines.items()
    }


def _line(key: Any, labels: Labels) -> list[Any]:
    """The policy and those above it."""
    line = [key]
    while (above := labels[line[-1]][1]) is not None:
        line.append(above)
    return line


def _total(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True))


# --- the picture -------------------------------------------------------------------------------


def history_chart(
    history: SplitHistory,
    series: tuple[Series, ...],
    waiting: Sequence[int],
    usable: int | None,
    *,
    hours: int,
    zone: ZoneInfo,
) -> HistoryChart | None:
    """None without a series.

    Args:
        waiting: what tasks waited for, in thousandths of GPU per step.
        usable: the capacity now, in thousandths; None: do not say.
    """
    if not series:
        return None
    totals = _total([one.values for one in series])
    demand = [a + b for a, b in zip(totals, waiting, strict=True)]
    held_top = max(*totals, usable or 0)
    top = scale_top(max(held_top, min(max(demand), MOST_DEMAND * held_top)), unit=MILLI)
    span_s = (history.at[-1] - history.began).total_seconds()
    begins = (history.began, *history.at)
    times = [_stretch(a, b, zone) for a, b in zip(begins, history.at, strict=False)]
    return HistoryChart(
        areas=_areas(series, top),
        demand="M0 " + _path([min(one, top) for one in demand], top) if any(waiting) else "",
        steps=tuple(_steps(times, (*series, Series("waiting for", REST, tuple(waiting))))),
        ticks=tuple(Tick(_y(top * at // 4, top), milli_text(top * at // 4)) for at in range(5)),
        marks=time_marks(history.began, history.at[-1], zone),
        series=series,
        rows=tuple(
            (text, (*(_gpu(one.values[step]) for one in series), _gpu(waiting[step])))
            for step, text in enumerate(times)
        ),
        capacity=None if usable is None else Tick(_y(usable, top), milli_text(usable)),
        span=span_words(span_s, hours=hours),
        mean=_gpu(sum(totals) // len(totals)),
        highest=_gpu(max(totals)),
        zone=str(zone),
    )


def _areas(series: Sequence[Series], top: int) -> tuple[Area, ...]:
    found, below = [], [0] * len(series[0].values)
    for one in series:
        above = [a + b for a, b in zip(below, one.values, strict=True)]
        found.append(Area(one.kind, _outline(above, below, top), "M0 " + _path(above, top)))
        below = above
    return tuple(found)


def _outline(above: Sequence[int], below: Sequence[int], top: int) -> str:
    """The shape between two step lines."""
    back = "".join(f"V{_y(value, top):g}H{at}" for at, value in reversed(list(enumerate(below))))
    return f"M0 {_path(above, top)}{back}Z"


def _path(values: Sequence[int], top: int) -> str:
    """A step line after `M0 `; equal steps are drawn in one."""
    path = f"{_y(values[0], top):g}"
    for at, value in enumerate(values):
        if at and value != values[at - 1]:
            path += f"H{at}V{_y(value, top):g}"
    return f"{path}H{len(values)}"


def _steps(times: Sequence[str], series: Sequence[Series]) -> Iterable[StepBar]:
    width = 100 / len(times)
    for at, text in enumerate(times):
        figures = [f"{one.label} {_gpu(one.values[at])}" for one in series if one.values[at]]
        yield StepBar(
            x=f"{width * at:.3f}%",
            width=f"{width:.3f}%",
            middle=f"{width * (at + 0.5):.3f}%",
            text="",
            label=f"{text}: {', '.join(figures) or 'nothing held'}",
            parts=(),
        )


def _stretch(began: datetime, ended: datetime, zone: ZoneInfo) -> str:
    """`27 Nov, 14:15 to 14:30`."""
    a, b = began.astimezone(zone), ended.astimezone(zone)
    last = f"{b:%H:%M}" if a.date() == b.date() else f"{b.day} {b:%b}, {b:%H:%M}"
    return f"{a.day} {a:%b}, {a:%H:%M} to {last}"


def _y(value: int, top: int) -> float:
    return round(HEIGHT * (1 - value / top), 1)


def _gpu(value: int) -> str:
    """GPUs with one decimal."""
    return milli_text(round(value, -2))
