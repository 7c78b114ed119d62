"""The volumes that the owner of a task may mount, by the rules of this moment."""

from collections.abc import Iterable

from apps.accounts.models import User
from apps.nodes.selectors import volumes_mountable_by
from apps.tasks.acceptance import NO_MOUNTS, Mounts, QueueFacts
from apps.tasks.models import Task
from apps.tasks.task_spec import TaskSpec


def mounts_of(
    specs: Iterable[TaskSpec], facts: QueueFacts, *, owner: User, is_by_owner: bool = True
) -> Mounts:
    """For tasks that their owner enqueues in a queue; no statement where none names a volume.

    Args:
        is_by_owner: as in `volumes_mountable_by`.
    """
    if not any(one.volumes or one.checkpoint_volume for one in specs):
        return NO_MOUNTS
    found = volumes_mountable_by(owner, facts.volumes, is_by_owner=is_by_owner)
    return Mounts(found, frozenset(found))


def mounts_for(actor: User, task: Task, spec: TaskSpec, facts: QueueFacts) -> Mounts:
    """For a task in a queue, where `actor` may be another user than its owner.

    An owner for whom a service account acts is the actor, without the role of an administrator.
    Nor does this role count where the owner did not write alone what the task runs.
    """
    if actor.pk == task.owner_id:
        return mounts_of([spec], facts, owner=actor, is_by_owner=task.is_by_owner)
    found = mounts_of([spec], facts, owner=task.owner, is_by_owner=task.is_by_owner)
    return Mounts(found.may_write, frozenset(volumes_mountable_by(actor, found.may_write)))
