"""What one reader sees of the attempts on the tape: names, colours, times and reasons."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.urls import reverse

from apps.accounts.models import User
from apps.accounts.selectors import time_zone_of
from apps.core.units import milli_text
from apps.dashboard.cards.chart_parts import REST, SERIES, series_kinds
from apps.dashboard.cards.history_chart import policy_groups
from apps.dashboard.cards.tape_geometry import TapePiece, TimeWindow
from apps.dashboard.cards.tasks import attempt_word
from apps.dashboard.cards.words import PREEMPTED
from apps.dashboard.selectors.tape import TapeAttempts
from apps.tasks.lifecycle.states import AttemptTier
from apps.tasks.models import Attempt
from apps.tasks.selectors.visibility import tasks_seen_with_queue
from apps.usage.selectors.current_usage import GPU
from apps.usage.selectors.labels import UsageGroup, labels_of


@dataclass(frozen=True, slots=True)
class TapeTask:
    """A line of the table."""

    place: str
    gpu: str
    task: str
    href: str
    policy: str
    owner: str
    began: datetime
    ended: datetime | None
    tier: str
    end: str


class TapeReader:
    """What one reader sees of the attempts: names, colours and times."""

    def __init__(self, user: User, found: TapeAttempts, window: TimeWindow) -> None:
        self.user, self.found, self.window = user, found, window
        self.zone = time_zone_of(user)
        self.lines: list[TapeTask] = []
        tasks = {one.task_id for one in found.attempts}
        seen = tasks_seen_with_queue(user).filter(pk__in=tasks).order_by()
        self.tasks = set(seen.values_list("pk", flat=True))
        labels = labels_of(UsageGroup.POLICY, user, {one.policy_id for one in found.attempts})
        self.policies = {pk: label for pk, (label, _) in labels.items()}
        self.groups = policy_groups(labels)
        self.kinds, self.series = self._colours()

    def _colours(self) -> tuple[Mapping[object, str], tuple[tuple[str, str], ...]]:
        """The colours of the policies that held the most here, and the legend."""
        held: Counter[tuple[object, str]] = Counter()
        others = 0
        for one in self.found.attempts:
            group = self.groups.get(one.policy_id)
            if group is None:
                others += 1
            else:
                began, ended = self.times(one)
                held[group] += (
                    one.request.get(GPU, 0) * one.replicas * int((ended - began).total_seconds())
                )
        ranked = [group for group, _ in held.most_common()]
        kinds = series_kinds([group for group, _ in ranked])
        series = [(name, kinds[group]) for group, name in ranked[: len(SERIES)]]
        if others or len(ranked) > len(SERIES):
            series.append(("Others", REST))
        return kinds, tuple(series)

    def times(self, one: Attempt) -> tuple[datetime, datetime]:
        """From when until when an attempt is drawn."""
        began = max(one.allocated_at, self.window.began)
        ended = min(one.ended_at or self.window.now, self.window.ended, self.window.now)
        return began, max(ended, began)

    def piece(self, one: Attempt, place: str, *, offset: int, amount: int, total: int) -> TapePiece:
        """What it held in a row: `amount` of the `total` that it held there."""
        began, ended = self.times(one)
        is_seen, policy = one.task_id in self.tasks, self.policies.get(one.policy_id)
        started = one.started_at or one.allocated_at
        limit_s = one.task.time_limit_s if is_seen else None
        group = self.groups.get(one.policy_id, (None, ""))[0]
        return TapePiece(
            began=began,
            ended=ended,
            offset=offset,
            amount=amount,
            kind=self.kinds.get(group, REST),
            name=one.task.name if is_seen else policy or "",
            label=self._label(one, place, total),
            href=reverse("task_detail", args=[one.task_id]) if is_seen else "",
            is_live=is_seen and one.ended_at is None,
            limit=None if limit_s is None else started + timedelta(seconds=limit_s),
            is_preempted=attempt_word(one) is PREEMPTED and policy is not None,
            over=tuple(self._over(one)) if policy is not None else (),
        )

    def add_line(self, one: Attempt, place: str, total: int) -> None:
        is_seen = one.task_id in self.tasks
        has_policy = one.policy_id in self.policies
        self.lines.append(
            TapeTask(
                place=place,
                gpu=milli_text(total),
                task=one.task.name if is_seen else "",
                href=reverse("task_detail", args=[one.task_id]) if is_seen else "",
                policy=self.policies.get(one.policy_id, ""),
                owner=str(one.task.owner) if is_seen else "",
                began=one.allocated_at,
                ended=one.ended_at,
                tier=_tier(one) if has_policy else "",
                end=attempt_word(one).text if is_seen else "",
            )
        )

    def _label(self, one: Attempt, place: str, total: int) -> str:
        """Who holds what, where, since when and why."""
        policy = self.policies.get(one.policy_id, "another policy")
        who = policy.capitalize() if policy == "another policy" else policy
        if one.task_id in self.tasks:
            who = f"{one.task.name}, {policy}, {one.task.owner}"
        words = [f"{who}: {milli_text(total)} GPU on {place}", self._time_words(one)]
        if one.policy_id in self.policies:
            words.append(_tier(one))
            words.append(attempt_word(one).text.lower())
        return ", ".join(filter(None, words))

    def _time_words(self, one: Attempt) -> str:
        began = one.allocated_at.astimezone(self.zone)
        if one.ended_at is None:
            return f"since {began.day} {began:%b %H:%M}"
        ended = one.ended_at.astimezone(self.zone)
        return f"{began.day} {began:%b %H:%M} to {ended.day} {ended:%b %H:%M}"

    def _over(self, one: Attempt) -> Iterator[tuple[datetime, datetime]]:
        at = one.allocated_at
        for past in self.found.past_tiers.get(one.pk, ()):
            if past.tier == AttemptTier.OVER_QUOTA:
                yield at, past.until
            at = max(at, past.until)
        if one.tier == AttemptTier.OVER_QUOTA:
            yield at, one.ended_at or self.window.now


def _tier(one: Attempt) -> str:
    """In words; empty where it was not recorded."""
    return str(AttemptTier(one.tier).label).lower() if one.tier else ""
