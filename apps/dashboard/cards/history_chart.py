"""Charts of GPUs held over time, stacked by policy, tier or pool: of the overview and of pages."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import parse_qs, urlencode

from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.selectors import time_zone_of
from apps.dashboard.cards.chart_parts import REST, SERIES, series_kinds
from apps.dashboard.cards.history_picture import HistoryChart, Series, history_chart, total_of
from apps.tasks.lifecycle.states import AttemptTier
from apps.usage.selectors.labels import Labels, UsageGroup, labels_of
from apps.usage.selectors.report import HIDDEN
from apps.usage.selectors.usage_history import HOURS, SPANS, STEPS, HistoryScope, usage_history
from apps.usage.selectors.used_history import used_history
from apps.usage.selectors.waiting_history import waiting_history

SPAN_WORDS = {3: "3 h", HOURS: "24 h", 7 * 24: "7 d", 30 * 24: "30 d"}
GROUP_WORDS = {UsageGroup.POLICY: "Policy", UsageGroup.TIER: "Tier", UsageGroup.POOL: "Pool"}
# The stacking order of tiers with their colours; what is over quota is hatched.
OVER = "over"
_TIERS = {
    AttemptTier.RESERVED: "use",
    AttemptTier.BORROWED: "profile",
    AttemptTier.OVER_QUOTA: OVER,
}


@dataclass(frozen=True, slots=True)
class HistorySubject:
    """What a chart is about.

    Args:
        groups: what it can be stacked by, first the usual one.
        capacity: the GPUs there now, in thousandths; None: do not say.
    """

    scope: HistoryScope
    groups: tuple[UsageGroup, ...]
    capacity: int | None = None

    @property
    def has_queues(self) -> bool:
        """Whether tasks wait for it: in pools and on nodes none does."""
        return self.scope.pool is None and self.scope.node is None


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """What the links of a chart ask for; anything else is a day by policy."""

    hours: int = HOURS
    by: UsageGroup = UsageGroup.POLICY

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string such as `hours=168&by=tier`."""
        given = {key: values[-1] for key, values in parse_qs(query).items()}
        hours = next((one for one in SPANS if str(one) == given.get("hours")), HOURS)
        by = next((one for one in GROUP_WORDS if one == given.get("by")), UsageGroup.POLICY)
        return cls(hours, by)

    def about(self, subject: HistorySubject) -> Self:
        """The same, or what there is for the subject instead."""
        hours = self.hours if self.hours in subject.scope.spans else HOURS
        by = self.by if self.by in subject.groups else subject.groups[0]
        return replace(self, hours=hours, by=by)

    def spans(self, subject: HistorySubject) -> list[tuple[str, str, bool]]:
        """Label and query of each span, and whether it is this one."""
        return [
            (SPAN_WORDS[hours], replace(self, hours=hours).query(), hours == self.hours)
            for hours in subject.scope.spans
        ]

    def groups(self, subject: HistorySubject) -> list[tuple[str, str, bool]]:
        """The same of what it is stacked by, where there is a choice."""
        if len(subject.groups) < 2:
            return []
        return [
            (GROUP_WORDS[by], replace(self, by=by).query(), by == self.by) for by in subject.groups
        ]

    @property
    def refresh_s(self) -> int:
        """How often the page asks again: a few times while a step of the chart passes."""
        return max(60, self.hours * 3600 // STEPS // 5)

    def query(self) -> str:
        return urlencode({"hours": self.hours, "by": self.by.value})


def load_history_chart(
    user: User, wanted: HistoryQuery, subject: HistorySubject
) -> HistoryChart | None:
    """None where nothing was held in this time."""
    now, scope = timezone.now(), subject.scope
    history = usage_history(wanted.by, scope, until=now, hours=wanted.hours)
    labels = labels_of(wanted.by, user, history.values)
    if wanted.by is UsageGroup.POLICY:
        labels = _parts_of(scope, labels)
    series = series_of(wanted.by, history.values, labels)
    if not series:
        return None
    steps = len(history.at)
    waiting = (
        waiting_history(scope, began=history.began, until=now, steps=steps)
        if subject.has_queues
        else None
    )
    return history_chart(
        history,
        series,
        waiting,
        subject.capacity,
        used=used_history(scope, began=history.began, until=now, hours=wanted.hours, steps=steps),
        hours=wanted.hours,
        zone=time_zone_of(user),
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
        tiers += [("Not recorded", REST, total_of(rest))] if rest else []
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
        ((group, total_of(found)) for group, found in groups.items()),
        key=lambda one: (-sum(one[1]), str(one[0])),
    )
    rows = [(group, row) for group, row in rows if any(row)]
    shown, small = rows[: len(SERIES)], rows[len(SERIES) :]
    kinds = series_kinds([group for group, _ in shown])
    found = [Series(words[group], kinds[group], row) for group, row in shown]
    if small:
        label = "Smaller policies" if by is UsageGroup.POLICY else "Smaller pools"
        found.append(Series(label, REST, total_of([row for _, row in small])))
    return tuple(found)


def _parts_of(scope: HistoryScope, labels: Labels) -> Labels:
    """Without the policies above those that it is about."""
    policies = frozenset(scope.policies)
    return {
        pk: (label, parent if parent in policies else None)
        for pk, (label, parent) in labels.items()
        if pk in policies
    }


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
