"""Database to snapshot, in a fixed number of queries however long the queues are."""

from dataclasses import dataclass

from apps.allocation.engine.snapshot import Snapshot
from apps.allocation.loader.configuration import load_configuration
from apps.allocation.loader.running import load_running
from apps.allocation.loader.usual import load_usual
from apps.allocation.loader.waiting import load_runs

__all__ = ["Loaded", "load"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The snapshot, and the ids of the run rows in the order of its `runs`."""

    snapshot: Snapshot
    run_ids: tuple[int, ...]


def load(*, now_us: int) -> Loaded:
    """The state of this moment, as the engine takes it.

    Args:
        now_us: microseconds since the epoch.
    """
    configuration = load_configuration()
    running = load_running(configuration)
    runs = load_runs(configuration, running)
    profiles = {profile.id for profile in configuration.profiles}
    snapshot = Snapshot(
        settings=configuration.settings,
        now_us=now_us,
        pools=configuration.pools,
        profiles=configuration.profiles,
        policies=configuration.policies,
        # A profile may have been removed, and its queues closed, between the two queries.
        queues=tuple(queue for queue in configuration.queues if queue.profile in profiles),
        runs=tuple(run for _, run in runs),
        running=running,
        usual=load_usual(configuration, now_us=now_us),
    )
    return Loaded(snapshot=snapshot, run_ids=tuple(pk for pk, _ in runs))
