"""One side of a preview: the snapshot, and what people call its rows."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from apps.allocation.engine.snapshot import Id, Pool, Run, Snapshot
from apps.allocation.loader import load
from apps.allocation.loader.configuration import Configuration, load_configuration
from apps.allocation.loader.counted import counted, waiting_counts
from apps.allocation.loader.texts import microseconds
from apps.allocation.loader.waiting import load_runs
from apps.policies.models import Queue
from apps.policies.models.rights import OnPreemption


@dataclass(frozen=True, slots=True)
class State:
    """`waiting` counts tasks per queue; `returning` are the queues whose victims wait again."""

    snapshot: Snapshot
    queues: Mapping[int, str]
    waiting: Mapping[Id, int]
    returning: frozenset[Id]


def state_now(*, now: datetime, base: Snapshot | None = None) -> State:
    """The state of this moment.

    Args:
        base: the snapshot of a moment ago, from which running work is taken: a change of
            configuration does not touch it, and comparing is fair only with the same.
    """
    configuration = load_configuration()
    if base is None:
        base = load(now_us=microseconds(now)).snapshot
    counts = waiting_counts()
    # With nothing running: on the way to rest room comes free that is taken now. And in pools
    # of twice the size, so that of those who find no room some are there to say why.
    roomy = replace(configuration, pools=tuple(map(_twice, configuration.pools)))
    runs = [counted(run, counts[pk]) for pk, run in load_runs(roomy, ())]
    names = dict(Queue.objects.values_list("pk", "name"))
    waiting: dict[Id, int] = defaultdict(int)
    for run in runs:
        waiting[run.queue] += run.count
    return State(
        snapshot=_with(base, configuration, tuple(runs)),
        queues=names,
        waiting=waiting,
        returning=frozenset(
            Queue.objects.filter(
                removed_at__isnull=True, on_preemption=OnPreemption.REQUEUE
            ).values_list("pk", flat=True)
        ),
    )


def _twice(pool: Pool) -> Pool:
    return replace(pool, capacity=pool.capacity.times(2))


def _with(base: Snapshot, configuration: Configuration, runs: tuple[Run, ...]) -> Snapshot:
    profiles = {profile.id for profile in configuration.profiles}
    return replace(
        base,
        settings=configuration.settings,
        pools=configuration.pools,
        profiles=configuration.profiles,
        policies=configuration.policies,
        queues=tuple(queue for queue in configuration.queues if queue.profile in profiles),
        runs=runs,
    )
