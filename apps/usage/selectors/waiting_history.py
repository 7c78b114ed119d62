"""GPUs that tasks waited for in the last hours and days."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, DateTimeField, F, Sum, Value, When
from django.db.models.functions import Coalesce, TruncHour, TruncMinute

from apps.core.units import milli
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task, TaskGroup
from apps.tasks.selectors.eligibility import WAITING
from apps.usage.models import UsageRun
from apps.usage.selectors.bookings import MS, bookings_of
from apps.usage.selectors.current_usage import GPU
from apps.usage.selectors.usage_history import HistoryScope, Stretch, stretch_sums

# Beginnings of waits are taken to the hour in longer times than this.
BY_THE_MINUTE = timedelta(days=1)


def waiting_history(
    scope: HistoryScope, *, began: datetime, until: datetime, steps: int
) -> tuple[int, ...]:
    """What tasks of these policies, or of one queue, waited for, in three to eight queries.

    Tasks that gave up before they were admitted are not in it.

    Returns:
        Thousandths of GPU as means of equal stretches of time, oldest first.
    """
    is_summed = until - began > BY_THE_MINUTE and not _is_before_sums(began)
    stretches = [
        *(_summed if is_summed else _admitted)(scope, began=began, until=until),
        *_queued(scope, began=began, until=until),
    ]
    sums = stretch_sums(stretches, began=began, until=until, steps=steps)
    return tuple(max(round(one), 0) for one in sums.get(None, [0.0] * steps))


def _is_before_sums(began: datetime) -> bool:
    """Whether an upgrade has begun to sum up waits later than this."""
    return UsageRun.objects.filter(demand_since__gt=began).exists()


def _summed(scope: HistoryScope, *, began: datetime, until: datetime) -> Iterator[Stretch]:
    """The waits of attempts as they are summed up, without reading the attempts."""
    first = scope.start_of(began)
    sums = scope.sums().filter(at__gte=first, at__lt=until, demand__gt=0).values_list("at")
    unbooked = scope.overlapping(began=began, until=until).filter(is_booked=False)
    bookings = (one for attempt in bookings_of(unbooked, until=until) for one in attempt.bookings)
    more = ((scope.start_of(one.at), one.sums.get("demand", 0)) for one in bookings)
    for at, demand in (*sums.annotate(Sum("demand")), *more):
        end = min(at + scope.step, until)
        if demand and first <= at < until:
            yield None, {GPU: demand / max((end - at) / MS, 1)}, 1, at, end
    again = scope.overlapping(began=began, until=until).filter(
        task__state=TaskState.QUEUED,
        task__generation=F("generation"),
        task__queue__policy=F("policy"),
        ended_at__isnull=False,
    )
    since = Coalesce("task__waiting_since", "task__submitted_at")
    for request, replicas, at, ended in again.values_list("request", "replicas", since, "ended_at"):
        if at < ended:
            yield None, request, -replicas, max(at, began), ended


def _admitted(scope: HistoryScope, *, began: datetime, until: datetime) -> Iterator[Stretch]:
    """The waits of attempts, which ended with their admission."""
    rows = scope.overlapping(began=began, until=until).values_list(
        "task",
        "generation",
        "request",
        "replicas",
        "allocated_at",
        "ended_at",
        "task__state",
        "task__generation",
        Coalesce("task__waiting_since", "task__submitted_at"),
        "policy",
        "task__queue__policy",
    )
    found = list(rows)
    ends: dict[tuple[UUID, int], datetime] = {
        (task, generation): ended for task, generation, _, _, _, ended, *_ in found if ended
    }
    for task, generation, request, replicas, allocated, ended, *more in found:
        state, last, since, policy, queue_policy = more
        # That of a later attempt began when the one before ended, at the latest.
        before = ends.get((task, generation - 1), began if generation > 1 else None)
        starts = [one for one in (before, since) if one is not None and one <= allocated]
        if starts:
            yield None, request, replicas, max(starts), allocated
        # It waits again, but not since it was submitted.
        is_here = queue_policy == policy
        if state == TaskState.QUEUED and generation == last and ended and is_here and since < ended:
            yield None, request, -replicas, max(since, began), ended


def _queued(scope: HistoryScope, *, began: datetime, until: datetime) -> Iterator[Stretch]:
    """The tasks that wait now, counted by group and beginning."""
    amounts = _amounts(scope)
    since = Coalesce("waiting_since", "submitted_at")
    trunc: Any = TruncMinute if until - began <= BY_THE_MINUTE else TruncHour
    rows: Any = (
        Task.objects.filter(WAITING, task_group__in=list(amounts))
        .order_by()
        .annotate(since=since)
        .annotate(
            at=Case(
                When(since__lte=began, then=Value(began)),
                default=trunc(F("since")),
                output_field=DateTimeField(),
            )
        )
        .values_list("task_group", "at")
        .annotate(Count("pk"))
    )
    for group, at, count in rows:
        if at < until:
            yield None, amounts[group], count, max(at, began), None


def _amounts(scope: HistoryScope) -> Mapping[int, Mapping[str, int]]:
    """Thousandths of GPU that one task of each group waits for."""
    groups = TaskGroup.objects.filter(queue__policy__in=scope.policies)
    if scope.queue is not None:
        groups = groups.filter(queue=scope.queue)
    columns = (
        "pk",
        "request",
        "replicas",
        "queue__profile__request",
        "queue__profile__replicas",
    )
    return {
        pk: {
            GPU: milli((usual if request is None else request).get(GPU, "0"))
            * (replicas or usual_replicas)
        }
        for pk, request, replicas, usual, usual_replicas in groups.values_list(*columns)
    }
