"""The work that a pool usually gets: recent admissions, and the profiles linked to it as a start.

What was admitted up to the last full hour counts: within the hour every pass sees the same work,
so that the engine can use again what it keeps for an equal configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from django.db.models import Count

from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import Id, UsualShape
from apps.allocation.loader.configuration import Configuration
from apps.core.ids import first_uuid7
from apps.tasks.models import Attempt

HOUR_MS = 3_600_000
HISTORY_MS = 14 * 24 * HOUR_MS
# The latest admissions in all pools together, and the shapes of each pool, that are used.
MOST_ATTEMPTS = 2_000
MOST_SHAPES = 64

ShapeKey = tuple[tuple[tuple[str, int], ...], int, tuple[str, ...]]


def load_usual(configuration: Configuration, *, now_us: int) -> tuple[UsualShape, ...]:
    """Of every pool, its most frequent shapes. One query, whatever the size of the history.

    A shape counts once for each profile linked to the pool, and once for each admission.
    """
    profiles = {profile.id: profile for profile in configuration.profiles}
    found: dict[Id, Counter[ShapeKey]] = {pool.id: Counter() for pool in configuration.pools}
    for pool in configuration.pools:
        for linked in (profiles[one] for one in pool.profiles if one in profiles):
            found[pool.id][_shape(linked.request, linked.replicas, linked.models)] += 1
    for row in _admitted(now_us // 1000):
        if row["pool_id"] in found:
            profile = profiles.get(row["queue__profile_id"])
            models = () if profile is None else profile.models
            shape = _shape(Quantities.of(row["request"]), row["replicas"], models)
            found[row["pool_id"]][shape] += row["count"]
    return tuple(usual for pool in configuration.pools for usual in _usual(pool.id, found[pool.id]))


def _shape(request: Quantities, replicas: int, models: tuple[str, ...]) -> ShapeKey:
    return request.positive().pairs, replicas, tuple(sorted(models))


def _usual(pool: Id, counted: Counter[ShapeKey]) -> Iterable[UsualShape]:
    most = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    for (pairs, replicas, models), frequency in most[:MOST_SHAPES]:
        yield UsualShape(Quantities(pairs), frequency, replicas, models, pool)


def _admitted(now_ms: int) -> Any:
    """Attempts grouped by pool and shape; their ids begin with the time at which they were made."""
    until = now_ms - now_ms % HOUR_MS
    latest = (
        Attempt.objects.filter(id__gte=first_uuid7(until - HISTORY_MS), id__lt=first_uuid7(until))
        .order_by("-id")
        .values("id")[:MOST_ATTEMPTS]
    )
    return (
        Attempt.objects.filter(id__in=latest)
        .order_by()
        .values("pool_id", "request", "replicas", "queue__profile_id")
        .annotate(count=Count("id"))
    )
