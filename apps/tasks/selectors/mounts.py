"""The volumes that the owner of a task may mount, by the rules of this moment."""

from collections.abc import Iterable

from apps.accounts.models import User
from apps.nodes.selectors import volumes_mountable_by
from apps.tasks.acceptance import NO_MOUNTS, Mounts, QueueFacts
from apps.tasks.models import Task
from apps.tasks.task_spec import TaskSpec


def mounts_of(specs: Iterable[TaskSpec], facts: QueueFacts, *, owner: User) -> Mounts:
    """For tasks that their owner enqueues in a queue; no statement where none names a volume."""
    if not any(one.volumes or one.checkpoint_volume for one in specs):
        return NO_MOUNTS
    found = volumes_mountable_by(owner, facts.volumes)
    return Mounts(found, frozenset(found))


def mounts_for(actor: User, task: Task, spec: TaskSpec, facts: QueueFacts) -> Mounts:
    """For a task in a queue, where `actor` may be another user than its owner.

    An owner for whom a service account acts is the actor, without the role of an administrator.
    """
    if actor.pk == task.owner_id:
        return mounts_of([spec], facts, owner=actor)
    found = mounts_of([spec], facts, owner=task.owner)
    return Mounts(found.may_write, frozenset(volumes_mountable_by(actor, found.may_write)))
