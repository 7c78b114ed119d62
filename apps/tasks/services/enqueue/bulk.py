"""Bulk requests: many tasks with one request."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import BadInput, RpmError
from apps.policies.models import Queue
from apps.tasks.acceptance import accept
from apps.tasks.models import Task, TaskDependency
from apps.tasks.selectors.mounts import mounts_of
from apps.tasks.services.dependencies import (
    OtherTasks,
    graph_lock,
    new_dependencies,
    others_lock,
)
from apps.tasks.services.enqueue.new_tasks import (
    drafts_announce,
    drafts_left,
    mark_queued,
    new_draft,
    new_task,
    too_many_drafts,
    waiting_announce,
)
from apps.tasks.services.enqueue.queue_bounds import (
    arrays_left,
    facts_for,
    has_vault_image,
    too_many_arrays,
    too_many_waiting,
    waiting_allowance,
)
from apps.tasks.services.queues import QueueRef, queue_not_found, queue_refs, queues_lock
from apps.tasks.services.task_groups import task_groups_ensure, too_many_groups
from apps.tasks.shapes import TaskShape
from apps.tasks.task_spec import TaskSpec

MANY = 1000
# Different queues in one request: each is locked and judged by itself.
QUEUES = 20
# Different tasks that those of one request wait for.
OTHERS = 1000

Items = list[tuple[int, TaskSpec]]
# The answers by the number of the item in the request.
Answers = dict[int, Any]


@dataclass(slots=True)
class _QueueItems:
    """Items for the same queue, given by its name or id, and their tasks."""

    found: QueueRef
    items: Items = field(default_factory=list)
    tasks: dict[int, Task] = field(default_factory=dict)
    has_image: bool = True


def tasks_enqueue_many(*, actor: User, items: Sequence[TaskSpec | RpmError]) -> list[Any]:
    """Enqueue many tasks at once; those without a queue become drafts.

    All valid ones are stored together; each of the others gets its own error.

    Args:
        items: descriptions, or the errors of reading them; at most `MANY`.
            Items beyond the first `QUEUES` queues are refused.

    Returns:
        For each item, in order: the stored `Task`, or the error.
    """
    if len(items) > MANY:
        problem = f"has {len(items)} tasks: at most {MANY} in one request"
        raise BadInput(f"The body {problem}.", fields={"body": problem})
    specs = [item for item in items if isinstance(item, TaskSpec)]
    _check_others(specs)
    answers: Answers = dict(enumerate(items))
    # All work that needs no lock is done before the transaction.
    drafts = _new_drafts(actor, answers)
    by_queue = _items_by_queue(actor, answers)
    with transaction.atomic():
        graph_lock(specs)
        _store_drafts(actor, drafts, answers)
        locked = queues_lock(actor, by_queue)
        others = others_lock(actor, specs)
        for queue_id, queue_items in by_queue.items():
            _enqueue_in(actor, locked.get(queue_id), queue_items, others, answers)
    return list(answers.values())


def _check_others(specs: Sequence[TaskSpec]) -> None:
    count = len({one.task for spec in specs for one in spec.after})
    if count > OTHERS:
        problem = f"has {count} different tasks in all: at most {OTHERS} in one request"
        raise BadInput(f"after {problem}.", fields={"after": problem})


def _new_drafts(actor: User, answers: Answers) -> dict[int, Task]:
    drafts = {}
    for index, item in answers.items():
        if isinstance(item, TaskSpec) and item.queue is None:
            try:
                drafts[index] = new_draft(item, actor)
            except RpmError as error:
                answers[index] = error
    return drafts


def _items_by_queue(actor: User, answers: Answers) -> dict[int, _QueueItems]:
    """Items by the id of their queue; refusals go to the answers."""
    named = _by_name(answers)
    found = queue_refs(actor, named)
    by_queue: dict[int, _QueueItems] = {}
    for given, items in named.items():
        queue = found[given]
        if isinstance(queue, RpmError):
            answers.update((index, queue) for index, _ in items)
        else:
            by_queue.setdefault(queue.pk, _QueueItems(queue)).items.extend(items)
    for queue_items in by_queue.values():
        queue_items.items.sort(key=itemgetter(0))
        for index, item in queue_items.items:
            try:
                queue_items.tasks[index] = new_task(item, actor)
            except RpmError as error:
                answers[index] = error
        queue_items.items = [
            (index, item) for index, item in queue_items.items if index in queue_items.tasks
        ]
        queue_items.has_image = has_vault_image(
            [item for _, item in queue_items.items],
            owner_id=actor.pk,
            tenant_id=queue_items.found.tenant_id,
        )
    return by_queue


def _by_name(answers: Answers) -> dict[str | int, Items]:
    """Items by the name that they give their queue; those beyond `QUEUES` queues are refused."""
    named: dict[str | int, Items] = {}
    for index, item in answers.items():
        if not isinstance(item, TaskSpec) or item.queue is None:
            continue
        if item.queue in named or len(named) < QUEUES:
            named.setdefault(item.queue, []).append((index, item))
        else:
            problem = f"is beyond the first {QUEUES} of this request: send it in another one"
            answers[index] = BadInput(f"queue {problem}.", fields={"queue": problem})
    return named


def _enqueue_in(
    actor: User,
    queue: Queue | None,
    queue_items: _QueueItems,
    others: OtherTasks,
    answers: Answers,
) -> None:
    """Store the tasks of one queue.

    Args:
        queue: locked; None: it was closed since it was found.
    """
    if queue is None:
        answers.update(
            (index, queue_not_found(item.queue or "")) for index, item in queue_items.items
        )
        return
    facts = facts_for(queue, has_image=queue_items.has_image)
    mounts = mounts_of([item for _, item in queue_items.items], facts, owner=actor)
    allowance = waiting_allowance(facts, actor.pk, wanted=len(queue_items.items))
    arrays = arrays_left(actor.pk) if any(one.array for _, one in queue_items.items) else 0
    shapes: dict[int, TaskShape] = {}
    edges: dict[int, list[TaskDependency]] = {}
    for index, item in queue_items.items:
        try:
            if len(shapes) >= allowance:
                raise too_many_waiting(facts)
            if item.array is not None and arrays < 1:
                raise too_many_arrays()
            shape = accept(item, facts, owner_id=actor.pk, mounts=mounts)
            edges[index] = new_dependencies(queue_items.tasks[index], item, others)
            shapes[index] = shape
            arrays -= item.array is not None
        except RpmError as error:
            answers[index] = error
    most = settings.RPM_TASK_GROUPS_PER_QUEUE
    task_groups = task_groups_ensure(facts.queue_id, shapes.values(), most=most)
    for index in [one for one, shape in shapes.items() if shape.digest() not in task_groups]:
        answers[index] = too_many_groups(most)
        del shapes[index]
    for index, shape in shapes.items():
        task = answers[index] = queue_items.tasks[index]
        # Each has its own time of submission, so that they wait in the order of the request.
        task_group_id = task_groups[shape.digest()]
        mark_queued(task, queue, shape=shape, task_group_id=task_group_id, at=timezone.now())
    tasks = [queue_items.tasks[index] for index in shapes]
    Task.objects.bulk_create(tasks)
    TaskDependency.objects.bulk_create(edge for index in shapes for edge in edges[index])
    waiting_announce(tasks, queue, actor.pk)


def _store_drafts(actor: User, drafts: dict[int, Task], answers: Answers) -> None:
    if not drafts:
        return
    left = max(0, drafts_left(actor))
    stored = dict(list(drafts.items())[:left])
    for index in drafts:
        answers[index] = stored.get(index) or too_many_drafts()
    Task.objects.bulk_create(stored.values())
    drafts_announce(list(stored.values()), actor.pk)
