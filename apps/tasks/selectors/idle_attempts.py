"""Attempts that hold GPUs without using them, as far as that is known."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Exists, F, Max, OuterRef, Q, QuerySet, Sum, Window
from django.db.models.functions import Coalesce, Greatest, Lag

from apps.core.units import MILLI
from apps.tasks.lifecycle.states import ENDED_STATES, LIVE_ATTEMPT_STATES
from apps.tasks.models import Attempt, DeviceUse, HeldDevice, IdleExemption, IdleWarning, Task
from apps.tasks.models.gpu_use import MS, SAMPLE_MOST, SLOT, slot_of

IDLE_AFTER = timedelta(minutes=15)
_WARNING = ("since", "warned_at", "stop_minutes", "stop_at", "attempt__task")


@dataclass(frozen=True, slots=True)
class IdleRule:
    """What the queue of a task says of idle tasks, and what that means for it now."""

    warn_minutes: int | None = None
    stop_minutes: int | None = None
    exemption: IdleExemption | None = None
    warning: IdleWarning | None = None


def attempts_idle(after: timedelta, now: datetime) -> "QuerySet[Any]":
    """Those whose GPUs have all been idle for so long, with the beginning as `idle_since`.

    Only what is known: sampled in the last five minutes, and each of its GPUs in the last 15.
    """
    held = HeldDevice.objects.filter(member__attempt=OuterRef("pk"), released_at__isnull=True)
    lately = DeviceUse.objects.filter(held=OuterRef("pk"), at__gte=now - IDLE_AFTER, known_ms__gt=0)
    return (
        Attempt.objects.filter(
            # Of a gang, nodes can be silent.
            ~Exists(held.exclude(Exists(lately))),
            state__in=LIVE_ATTEMPT_STATES,
            use__sampled_at__gte=now - SLOT,
            use__known_ms__gt=0,
            started_at__isnull=False,
        )
        .annotate(idle_since=Greatest(Coalesce("use__used_at", "started_at"), "started_at"))
        .filter(idle_since__lte=now - after)
    )


def known_idle(attempt: Attempt, since: datetime, now: datetime) -> timedelta | None:
    """For how long samples say that all its GPUs were idle, of the time since they were used last.

    A gap between samples adds nothing, as nothing is known of it; after one of 15 minutes, in which
    it can have worked, the time starts from zero.

    Returns:
        None where one of its GPUs is simulated, shared, or was not sampled just now.
    """
    since = max(since, _end_of_gap(attempt, since) or since)
    first = slot_of(since)
    known = Q(uses__known_ms__gt=0)
    held = HeldDevice.objects.filter(member__attempt=attempt, released_at__isnull=True)
    rows = (
        held.order_by()
        .annotate(
            last_at=Max("uses__at", filter=known),
            first_ms=Coalesce(Sum("uses__known_ms", filter=Q(uses__at=first)), 0),
            later_ms=Coalesce(Sum("uses__known_ms", filter=Q(uses__at__gt=first)), 0),
        )
        .values_list(
            *("device__is_simulated", "milli", "member__node__sampled_at"),
            *("last_at", "first_ms", "later_ms"),
        )
    )
    least, recent = None, now - SAMPLE_MOST
    for is_simulated, milli, sampled_at, last, first_ms, later_ms in rows:
        is_known = not is_simulated and milli == MILLI and sampled_at and last
        if not is_known or sampled_at < recent or last < slot_of(recent):
            return None
        # Of the five minutes in which it was used last, only what is left of them.
        ms = min(first_ms, (first + SLOT - since) // MS) + later_ms
        least = ms if least is None else min(least, ms)
    return None if least is None else least * MS


def _end_of_gap(attempt: Attempt, since: datetime) -> datetime | None:
    """When a GPU was sampled again after the last such gap; None where there was none."""
    slots = DeviceUse.objects.filter(held__member__attempt=attempt, at__gte=slot_of(since))
    before = Window(Lag("at"), partition_by="held", order_by="at")
    after_gaps = slots.filter(known_ms__gt=0).annotate(before=before).order_by("-at")
    return after_gaps.filter(before__lt=F("at") - IDLE_AFTER).values_list("at", flat=True).first()


def idle_rule_of(task: Task) -> IdleRule:
    """For a reader who loaded the task; nothing where a rule shows it without its queue."""
    queue = task.queue
    if queue is None:
        return IdleRule()
    return IdleRule(
        warn_minutes=queue.idle_warn_minutes,
        stop_minutes=queue.idle_stop_minutes,
        exemption=IdleExemption.objects.select_related("by").filter(task=task).first(),
        warning=idle_warnings_of([task.pk]).get(task.pk),
    )


def may_be_idle(task: Task) -> bool:
    """Whether its queue has a rule that could apply to the task now or later."""
    queue = task.queue
    if queue is None or queue.idle_warn_minutes is None or task.state in ENDED_STATES:
        return False
    request = queue.profile.request if task.request is None else task.request
    return bool(request.get("gpu"))


def idle_warnings_of(task_ids: Iterable[UUID]) -> dict[UUID, IdleWarning]:
    """The warnings of those of the tasks that have one, in one query."""
    rows = IdleWarning.objects.filter(
        attempt__task__in=list(task_ids), attempt__state__in=LIVE_ATTEMPT_STATES
    )
    return {one.attempt.task_id: one for one in rows.select_related("attempt").only(*_WARNING)}
