"""Making many tasks with one request."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import BadInput, RpmError
from apps.policies.models import Queue
from apps.tasks.acceptance import accept
from apps.tasks.descriptions import Description
from apps.tasks.models import Task
from apps.tasks.services.new_tasks import (
    drafts_announce,
    drafts_left,
    let_wait,
    new_draft,
    new_task,
    too_many_drafts,
    waiting_announce,
)
from apps.tasks.services.queues import Found, not_found, queues_found, queues_locked
from apps.tasks.services.runs import runs_ensure
from apps.tasks.services.waiting import (
    facts_for,
    is_image_brought,
    room_to_wait,
    too_many_waiting,
)
from apps.tasks.shapes import Shape

MANY = 1000
# Different ones in one request: each is locked and judged by itself.
QUEUES = 20

Items = list[tuple[int, Description]]
# What one item of the request, by its number, is answered.
Answers = dict[int, Any]


@dataclass(slots=True)
class _Place:
    """Items that wait in the same queue, by its name or its id, and their tasks."""

    found: Found
    items: Items = field(default_factory=list)
    tasks: dict[int, Task] = field(default_factory=dict)
    has_image: bool = True


def tasks_enqueue_many(*, actor: User, items: Sequence[Description | RpmError]) -> list[Any]:
    """Enqueue many tasks at once; those without a queue become drafts.

    All that can be taken are stored together, the others answered one by one.

    Args:
        items: descriptions, or what was wrong with them when they were read; at most `MANY`.
            Those of more than `QUEUES` queues are refused.

    Returns:
        For each item, in order: the stored `Task`, or the error.
    """
    if len(items) > MANY:
        problem = f"has {len(items)} tasks: at most {MANY} in one request"
        raise BadInput(f"The body {problem}.", fields={"body": problem})
    answers: Answers = dict(enumerate(items))
    # Everything that needs no lock is done before the transaction.
    drafts = _new_drafts(actor, answers)
    places = _places(actor, answers)
    with transaction.atomic():
        _store_drafts(actor, drafts, answers)
        locked = queues_locked(actor, places)
        for queue_id, place in places.items():
            _enqueue_in(actor, locked.get(queue_id), place, answers)
    return list(answers.values())


def _new_drafts(actor: User, answers: Answers) -> dict[int, Task]:
    drafts = {}
    for index, item in answers.items():
        if isinstance(item, Description) and item.queue is None:
            try:
                drafts[index] = new_draft(item, actor)
            except RpmError as error:
                answers[index] = error
    return drafts


def _places(actor: User, answers: Answers) -> dict[int, _Place]:
    """What waits where, by the id of the queue; refusals go to the answers."""
    named = _by_name(answers)
    found = queues_found(actor, named)
    places: dict[int, _Place] = {}
    for given, items in named.items():
        queue = found[given]
        if isinstance(queue, RpmError):
            answers.update((index, queue) for index, _ in items)
        else:
            places.setdefault(queue.pk, _Place(queue)).items.extend(items)
    for place in places.values():
        place.items.sort(key=itemgetter(0))
        for index, item in place.items:
            try:
                place.tasks[index] = new_task(item, actor)
            except RpmError as error:
                answers[index] = error
        place.items = [(index, item) for index, item in place.items if index in place.tasks]
        place.has_image = is_image_brought(
            [item for _, item in place.items],
            owner_id=actor.pk,
            tenant_id=place.found.tenant_id,
        )
    return places


def _by_name(answers: Answers) -> dict[str | int, Items]:
    """Items by what they call their queue; those of one queue too many are refused."""
    named: dict[str | int, Items] = {}
    for index, item in answers.items():
        if not isinstance(item, Description) or item.queue is None:
            continue
        if item.queue in named or len(named) < QUEUES:
            named.setdefault(item.queue, []).append((index, item))
        else:
            problem = f"is beyond the first {QUEUES} of this request: send it in another one"
            answers[index] = BadInput(f"queue {problem}.", fields={"queue": problem})
    return named


def _enqueue_in(actor: User, queue: Queue | None, place: _Place, answers: Answers) -> None:
    """Store the tasks of one queue.

    Args:
        queue: locked; None: it was closed since it was found.
    """
    if queue is None:
        answers.update((index, not_found(item.queue or "")) for index, item in place.items)
        return
    facts = facts_for(queue, has_image=place.has_image)
    room = room_to_wait(facts, actor.pk, wanted=len(place.items))
    shapes: dict[int, Shape] = {}
    for index, item in place.items:
        try:
            if len(shapes) >= room:
                raise too_many_waiting(facts)
            shapes[index] = accept(item, facts, owner_id=actor.pk)
        except RpmError as error:
            answers[index] = error
    runs = runs_ensure(facts.queue_id, shapes.values())
    for index, shape in shapes.items():
        task = answers[index] = place.tasks[index]
        # Each has its own moment, so that they wait in the order of the request.
        run_id = runs[shape.digest()]
        let_wait(task, queue, shape=shape, run_id=run_id, at=timezone.now())
    tasks = [place.tasks[index] for index in shapes]
    Task.objects.bulk_create(tasks)
    waiting_announce(tasks, facts, actor.pk)


def _store_drafts(actor: User, drafts: dict[int, Task], answers: Answers) -> None:
    if not drafts:
        return
    left = max(0, drafts_left(actor))
    stored = dict(list(drafts.items())[:left])
    for index in drafts:
        answers[index] = stored.get(index) or too_many_drafts()
    Task.objects.bulk_create(stored.values())
    drafts_announce(list(stored.values()), actor.pk)
