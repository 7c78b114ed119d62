"""How tasks of the demonstration use their simulated GPUs: made up, as samples of real ones are."""

import random
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from apps.core.units import MILLI
from apps.tasks.models import HeldDevice
from apps.tasks.models.gpu_use import SLOT, slot_of
from apps.tasks.services.gpu_use import HeldUse, held_uses_add, stretches
from rpm.demonstration.catalog import NOTEBOOK, USERNAMES
from rpm.demonstration.presence import active_nodes

# As often as beat asks for them.
EVERY = timedelta(seconds=30)


def simulated_use(
    task: str, *, milli: int, held: int, attempt: UUID, since: datetime, until: datetime
) -> HeldUse:
    """What a task of this name does then, the same whenever it is asked for.

    A GPU takes 70 W, and up to 400 W more.
    """
    usual, now = random.Random(task), random.Random(f"{task} {slot_of(since)}")  # noqa: S311
    percent = round(usual.uniform(42, 90) + now.uniform(-9, 9))
    memory_mb = round(usual.uniform(20_000, 70_000) * milli / MILLI)
    if task.startswith(NOTEBOOK):
        percent, memory_mb = 0, 1_800
    if milli < MILLI:
        return HeldUse(held, attempt, since, until, memory_mb, percent=None, power_mw=0)
    power_mw = (70 + 4 * percent) * 1000
    return HeldUse(held, attempt, since, until, memory_mb, percent=percent, power_mw=power_mw)


def samples_record(*, now: datetime) -> int:
    """Add what live tasks did in the last half minute. Returns how many devices they hold."""
    uses = list(_live_uses(active_nodes().values_list("pk", flat=True), now))
    held_uses_add(
        replace(one, since=since, until=until)
        for one in uses
        for since, until in stretches(one.since, one.until, SLOT)
    )
    return len(uses)


def _live_uses(nodes: Collection[int], now: datetime) -> Iterator[HeldUse]:
    rows = HeldDevice.objects.filter(
        released_at__isnull=True,
        device__node__in=nodes,
        member__started_at__lt=now,
        member__ended_at__isnull=True,
        member__attempt__task__owner__username__in=USERNAMES,
    ).order_by("pk")
    of_attempt = "member__attempt"
    for task, milli, held, attempt, started_at in rows.values_list(
        f"{of_attempt}__task__name", "milli", "pk", of_attempt, "member__started_at"
    ):
        since = max(started_at, now - EVERY)
        yield simulated_use(task, milli=milli, held=held, attempt=attempt, since=since, until=now)
