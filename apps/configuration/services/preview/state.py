"""One side of a preview: the snapshot, and the names of its rows."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from apps.allocation.engine.model.snapshot import Id, PoolSnapshot, QueuedGroup, Snapshot
from apps.allocation.loader import load
from apps.allocation.loader.configuration import Configuration, load_configuration
from apps.allocation.loader.queued_counts import queued_counts, with_count
from apps.allocation.loader.queued_groups import load_queued_groups
from apps.allocation.loader.texts import microseconds
from apps.policies.models import Queue
from apps.policies.models.policies import OnPreemption


@dataclass(frozen=True, slots=True)
class PreviewState:
    """`waiting` counts tasks per queue; `returning` are the queues whose victims wait again."""

    snapshot: Snapshot
    queues: Mapping[int, str]
    waiting: Mapping[Id, int]
    returning: frozenset[Id]


def state_now(*, now: datetime, base: Snapshot | None = None) -> PreviewState:
    """The state of this moment.

    Args:
        base: the snapshot of a moment ago, from which running work is taken: a change of
            configuration does not touch it, and comparing is fair only with the same.
    """
    configuration = load_configuration()
    if base is None:
        base = load(now_us=microseconds(now)).snapshot
    counts = queued_counts()
    # With nothing running: capacity in use now becomes free before rest. And in pools of twice
    # the size, so that some of the tasks that do not fit are loaded to say why.
    with_capacity = replace(configuration, pools=tuple(map(_double, configuration.pools)))
    queued_groups = [
        with_count(queued, counts[pk]) for pk, queued in load_queued_groups(with_capacity, ())
    ]
    names = dict(Queue.objects.values_list("pk", "name"))
    waiting: dict[Id, int] = defaultdict(int)
    for queued in queued_groups:
        waiting[queued.queue] += queued.count
    return PreviewState(
        snapshot=_with(base, configuration, tuple(queued_groups)),
        queues=names,
        waiting=waiting,
        returning=frozenset(
            Queue.objects.filter(
                removed_at__isnull=True, on_preemption=OnPreemption.REQUEUE
            ).values_list("pk", flat=True)
        ),
    )


def _double(pool: PoolSnapshot) -> PoolSnapshot:
    return replace(pool, capacity=pool.capacity.times(2))


def _with(
    base: Snapshot, configuration: Configuration, queued_groups: tuple[QueuedGroup, ...]
) -> Snapshot:
    profiles = {profile.id for profile in configuration.profiles}
    return replace(
        base,
        settings=configuration.settings,
        pools=configuration.pools,
        profiles=configuration.profiles,
        policies=configuration.policies,
        queues=tuple(queue for queue in configuration.queues if queue.profile in profiles),
        queued_groups=queued_groups,
    )
