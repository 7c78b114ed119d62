"""Bounds on waiting tasks of a queue, per user and in all, and the facts that apply."""

from collections.abc import Sequence
from dataclasses import replace

from django.conf import settings

from apps.core.errors import Conflict
from apps.core.origin import acted_by
from apps.policies.models import Queue
from apps.tasks.acceptance import QueueFacts
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task
from apps.tasks.selectors.facts import cached_queue_facts
from apps.tasks.selectors.vaults import vaults_have_image
from apps.tasks.task_spec import TaskSpec

# The cost of a count grows with the queue: a process counts once for this many tasks of a user, by
# which the bounds of the installation may be exceeded.
COUNT_EVERY = 1000
MOST_REMEMBERED = 10_000
# Arrays of one user in all queues: every step looks at each of them.
MOST_ARRAYS = 1000
_since_count: dict[tuple[int, int], int] = {}


def count_is_due(queue_id: int, owner_id: int) -> bool:
    """Whether enough tasks were accepted since the last count for another one."""
    since = _since_count.get((queue_id, owner_id), 0) + 1
    if since > _uncounted():
        return True
    _note(queue_id, owner_id, since)
    return False


def is_counted(facts: QueueFacts, owner_id: int) -> bool:
    """Whether waiting tasks are counted before the next one of this user."""
    return facts.max_waiting is not None or count_is_due(facts.queue_id, owner_id)


def check_may_wait(facts: QueueFacts, owner_id: int) -> None:
    """Raise Conflict where no further task of this user may wait in the queue."""
    if is_counted(facts, owner_id) and waiting_allowance(facts, owner_id, wanted=1) < 1:
        raise too_many_waiting(facts)


def waiting_allowance(facts: QueueFacts, owner_id: int, *, wanted: int) -> int:
    """How many of the wanted tasks of a user may wait in the queue.

    Elements of arrays have a bound of their own: those of one user leave the others their tasks.
    """
    waiting = Task.objects.filter(queue_id=facts.queue_id, state=TaskState.QUEUED)
    free = settings.RPM_WAITING_PER_QUEUE - waiting.count()
    own = _most_of_one(facts) - waiting.filter(owner_id=owner_id).count()
    if min(free, own) - wanted <= _uncounted():
        elements = waiting.filter(array__isnull=False)
        free += elements.count()
        own += elements.filter(owner_id=owner_id).count()
    allowance = max(0, min(own, free))
    # Close to a bound every task is counted, so that no task passes uncounted.
    _note(facts.queue_id, owner_id, 0 if allowance - wanted > _uncounted() else COUNT_EVERY)
    return allowance


def too_many_waiting(facts: QueueFacts) -> Conflict:
    problem = f"lets at most {_most_of_one(facts)} tasks of one user wait"
    if facts.max_waiting is None:
        problem += f", and {settings.RPM_WAITING_PER_QUEUE} of all"
    return Conflict(f"Queue {facts.name} {problem}.", fields={"queue": problem})


def check_may_open_array(task: Task) -> None:
    """Raise Conflict where the task is an array, and its owner may have no further one."""
    if task.array_count is not None and arrays_left(task.owner_id) < 1:
        raise too_many_arrays()


def arrays_left(owner_id: int) -> int:
    """How many more arrays of a user may wait; concurrent requests may exceed it slightly."""
    waiting = Task.objects.filter(state=TaskState.QUEUED, array_count__isnull=False)
    return MOST_ARRAYS - waiting.filter(owner=owner_id).values("pk")[:MOST_ARRAYS].count()


def too_many_arrays() -> Conflict:
    problem = f"may be {MOST_ARRAYS} at most: wait until some have ended, or abort some"
    return Conflict(f"Arrays of one user that have not ended {problem}.", fields={"array": problem})


def _most_of_one(facts: QueueFacts) -> int:
    most: int = settings.RPM_WAITING_PER_PERSON
    return most if facts.max_waiting is None else min(facts.max_waiting, most)


def _uncounted() -> int:
    """How many tasks are accepted between two counts."""
    bounds = (settings.RPM_WAITING_PER_PERSON, settings.RPM_WAITING_PER_QUEUE)
    return int(min(COUNT_EVERY, min(bounds) // 100))


def _note(queue_id: int, owner_id: int, since: int) -> None:
    if len(_since_count) >= MOST_REMEMBERED:
        _since_count.clear()
    _since_count[queue_id, owner_id] = since


def has_vault_image(
    descriptions: Sequence[TaskSpec],
    *,
    owner_id: int,
    tenant_id: int | None,
    is_by_owner: bool | None = None,
) -> bool:
    """Whether every task has an image: its own, or one from vaults of its owner.

    Called before the queue is locked, because reading vaults takes longest here.

    Args:
        tenant_id: of the policy of the queue.
        is_by_owner: the owner alone wrote the descriptions; None: as the current request says.
    """
    if all(one.image for one in descriptions):
        return True
    by_owner = acted_by(owner_id) is None if is_by_owner is None else is_by_owner
    return vaults_have_image(owner_id, tenant_id=tenant_id, is_by_owner=by_owner)


def facts_for(queue: Queue, *, has_image: bool) -> QueueFacts:
    """The facts of the queue; it needs no image where `has_vault_image`."""
    facts = cached_queue_facts(queue)
    return replace(facts, needs_image=facts.needs_image and not has_image)
