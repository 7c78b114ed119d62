"""Database to snapshot, in a fixed number of queries however long the queues are."""

from dataclasses import dataclass

from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.loader.configuration import load_configuration
from apps.allocation.loader.queued_groups import load_queued_groups
from apps.allocation.loader.running_groups import load_running
from apps.allocation.loader.usual_shapes import load_usual

__all__ = ["LoadedSnapshot", "load"]


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """The snapshot, and the ids of the group rows in the order of its `queued_groups`."""

    snapshot: Snapshot
    group_ids: tuple[int, ...]


def load(*, now_us: int) -> LoadedSnapshot:
    """The current state, as the engine takes it.

    Args:
        now_us: microseconds since the epoch.
    """
    configuration = load_configuration()
    running = load_running(configuration)
    queued_groups = load_queued_groups(configuration, running)
    profiles = {profile.id for profile in configuration.profiles}
    snapshot = Snapshot(
        settings=configuration.settings,
        now_us=now_us,
        pools=configuration.pools,
        profiles=configuration.profiles,
        policies=configuration.policies,
        # A profile may have been removed, and its queues closed, between the two queries.
        queues=tuple(queue for queue in configuration.queues if queue.profile in profiles),
        queued_groups=tuple(queued for _, queued in queued_groups),
        running=running,
        usual=load_usual(configuration, now_us=now_us),
    )
    return LoadedSnapshot(snapshot=snapshot, group_ids=tuple(pk for pk, _ in queued_groups))
