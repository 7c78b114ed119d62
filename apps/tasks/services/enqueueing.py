"""Making tasks: drafts, and tasks that wait in a queue."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.errors import BadInput, Conflict, NotAllowed, RpmError, Stale
from apps.core.origin import acted_by
from apps.events.services import Entry, events_record
from apps.policies.models import Queue
from apps.tasks.acceptance import QueueFacts, accept
from apps.tasks.descriptions import Description, description_of, request_texts
from apps.tasks.models import Task
from apps.tasks.redaction import is_secret, unhidden
from apps.tasks.selectors.secrets import task_secrets
from apps.tasks.services.idempotency import Idempotency, earlier_task, key_keep
from apps.tasks.services.queues import check_open_to_owner, queue_open_to
from apps.tasks.services.runs import run_ensure
from apps.tasks.services.sealing import secrets_sealed, with_secrets
from apps.tasks.services.storage import check_may_store
from apps.tasks.services.transitions import Moved, tasks_announce, tasks_move
from apps.tasks.services.waiting import check_may_wait, facts_for, room_to_wait, too_many_waiting
from apps.tasks.sizes import description_bytes
from apps.tasks.states import TaskState

MANY = 1000


def task_create(
    *, actor: User, description: Description, idempotency: Idempotency | None = None
) -> Task:
    """A draft of the actor's own; nothing runs before it is enqueued.

    Raises:
        Conflict: the idempotency key was used with another body, or a bound is reached.
    """
    known = earlier_task(actor.pk, idempotency)
    if known is not None:
        return known
    task = _draft(description, actor)
    try:
        with transaction.atomic():
            if _drafts_left(actor) < 1:
                raise _too_many_drafts()
            task.save(force_insert=True)
            key_keep(actor.pk, idempotency, task.pk)
            _record_drafts([task], actor)
    except IntegrityError:
        return _earlier_or_raise(actor, idempotency)
    return task


def task_change(*, actor: User, task: Task, changes: Mapping[str, Any]) -> Task:
    """Change fields of a draft of one's own.

    Args:
        task: as the actor read it; who was faster since then is not overwritten.
        changes: names of `Description` without the queue, which is chosen by enqueueing.

    Raises:
        NotAllowed: it is somebody else's, or holds secrets that are.
        BadInput: a field is unknown or will not do.
        Conflict: the task is not a draft any more, or its owner's tasks would take too much.
        Stale: it was changed meanwhile.
    """
    if task.owner_id != actor.pk and not is_admin(actor):
        raise NotAllowed("This draft is somebody else's.")
    is_by_owner = task.owner_id == actor.pk and acted_by(actor.pk) is None
    if not is_by_owner and _holds_secrets(task):
        raise NotAllowed("This draft holds secrets of its owner's, who alone changes what it runs.")
    merged = description_of({**description_values(task), **_with_hidden(changes, task)})
    if merged.queue is not None:
        raise BadInput(
            "queue is chosen when the task is enqueued.",
            fields={"queue": "is chosen when the task is enqueued"},
        )
    request = None if merged.request is None else request_texts(merged, keys=None)
    values = {
        **columns(merged),
        "secrets": secrets_sealed(merged.secrets, task),
        "request": request,
        "changed_at": timezone.now(),
    }
    if not is_by_owner:
        values["is_by_owner"] = False
    if values["size_bytes"] > task.size_bytes:
        check_may_store(task.owner_id, values["size_bytes"] - task.size_bytes)
    with transaction.atomic():
        drafts = Task.objects.filter(pk=task.pk, state=TaskState.DRAFT)
        if not drafts.filter(changed_at=task.changed_at).update(**values):
            if drafts.exists():
                raise Stale("Somebody changed this draft since you read it.")
            raise Conflict("Only drafts can be changed.")
        entry = Entry(
            kind="task.changed",
            object_type="task",
            object_id=task.pk,
            actor_id=actor.pk,
            data={"fields": sorted(changes)},
            is_audited=actor.pk != task.owner_id,
        )
        events_record([entry], topics=[f"task.{task.pk}"])
    task.refresh_from_db()
    return task


def task_submit(
    *, actor: User, description: Description, idempotency: Idempotency | None = None
) -> Task:
    """A new task that waits in the queue which its description names.

    Raises:
        NotFound, NotAllowed: the queue is invisible, or visible and not open.
        BadInput, NeverFits: the queue does not take such a task.
        Conflict: the idempotency key was used with another body.
    """
    known = earlier_task(actor.pk, idempotency)
    if known is not None:
        return known
    if description.queue is None:
        raise BadInput("queue is missing.", fields={"queue": "is missing"})
    try:
        with transaction.atomic():
            queue = queue_open_to(actor, description.queue)
            facts = facts_for(queue, [description], owner_id=actor.pk)
            check_may_wait(facts, actor.pk)
            task = _waiting_task(description, queue, facts, actor=actor, runs={})
            task.save(force_insert=True)
            key_keep(actor.pk, idempotency, task.pk)
            _announce([task], facts, actor.pk)
    except IntegrityError:
        return _earlier_or_raise(actor, idempotency)
    return task


def tasks_enqueue_many(*, actor: User, items: Sequence[Description | RpmError]) -> list[Any]:
    """Enqueue many tasks at once; those without a queue become drafts.

    All that can be taken are stored together, the others answered one by one.

    Args:
        items: descriptions, or what was wrong with them when they were read; at most 1,000.

    Returns:
        For each item, in order: the stored `Task`, or the error.
    """
    if len(items) > MANY:
        problem = f"has {len(items)} tasks: at most {MANY} in one request"
        raise BadInput(f"The body {problem}.", fields={"body": problem})
    answers: list[Any] = list(items)
    places: dict[str | int | None, list[int]] = {}
    for index, item in enumerate(items):
        if isinstance(item, Description):
            places.setdefault(item.queue, []).append(index)
    with transaction.atomic():
        # Queues are locked in one order, so that two requests never wait in a circle.
        for given in sorted(places, key=str):
            chosen = [(index, items[index]) for index in places[given]]
            for index, answer in _enqueue_in(actor, given, chosen):
                answers[index] = answer
    return answers


def task_enqueue(*, actor: User, task: Task, queue: str | int) -> Task:
    """Put a draft into a queue.

    Raises:
        NotFound, NotAllowed: the queue is invisible, or visible and not open; the draft is
            somebody else's.
        BadInput, NeverFits: the queue does not take such a task.
        Conflict: the task is not a draft any more.
    """
    if task.owner_id != actor.pk and not is_admin(actor):
        raise NotAllowed("This draft is somebody else's.")
    return task_return(actor=actor, task=task, queue=queue, expected=(TaskState.DRAFT,))


def task_return(
    *, actor: User, task: Task, queue: str | int, expected: Sequence[str], **changes: Any
) -> Task:
    """Let a task wait in a queue, judged anew as if it had just been described.

    Args:
        expected: the states that it may come from.
        changes: columns to set beside its place in the queue.

    Raises:
        NotAllowed: one of actor and owner may not enqueue there.
        NotFound: the actor does not see the queue.
        BadInput, NeverFits: the queue does not take such a task.
        Conflict: the task is in none of the expected states.
    """
    with transaction.atomic():
        found = queue_open_to(actor, queue)
        check_open_to_owner(task, found)
        # As it is now: a change since the actor read it would else wait in the run of another.
        now = Task.objects.select_for_update(no_key=True).get(pk=task.pk)
        description = description_of(description_values(now))
        facts = facts_for(found, [description], owner_id=now.owner_id, is_by_owner=now.is_by_owner)
        check_may_wait(facts, task.owner_id)
        shape = accept(description, facts, owner_id=task.owner_id)
        place: dict[str, Any] = {
            "queue_id": facts.queue_id,
            "run_id": run_ensure(facts.queue_id, shape),
            "request": shape.request,
            "state_detail": "",
        }
        if "submitted_at" not in changes:
            place |= {"submitted_at": timezone.now(), "waiting_since": None}
        moved = tasks_move(
            [task.pk],
            expected=expected,
            to=TaskState.QUEUED,
            actor_id=actor.pk,
            changes={**place, **changes},
        )
        if not moved:
            raise Conflict("The task is in another state by now: read it again.")
    task.refresh_from_db()
    return task


def columns(description: Description) -> dict[str, Any]:
    """Columns of a task that say what its owner described, without request, secrets and place."""
    callback = description.abort_callback
    return {
        "name": description.name.strip(),
        "image": description.image,
        "command": description.command,
        "environment": description.environment,
        "working_dir": description.working_dir,
        "replicas": description.replicas,
        "volumes": description.volumes,
        "priority": description.priority,
        "is_preemptible": description.is_preemptible,
        "is_restartable": description.is_restartable,
        "time_limit_s": description.time_limit_s,
        "retries": description.retries,
        "abort_callback": msgspec.to_builtins(callback) if callback else None,
        "checkpoint_volume": description.checkpoint_volume,
        "tags": description.tags,
        "size_bytes": description_bytes(description),
    }


def description_values(task: Task) -> dict[str, Any]:
    """What a task's description said, as plain values."""
    names = (name for name in Description.__struct_fields__ if name not in {"queue", "secrets"})
    return {**{name: getattr(task, name) for name in names}, "secrets": task_secrets(task)}


def _holds_secrets(task: Task) -> bool:
    own = task.owner.redacted_variables
    return bool(task.secrets) or any(is_secret(name, own) for name in task.environment)


def _with_hidden(changes: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The changes, with the stored value wherever one was read hidden and is sent back so."""
    stored = {"environment": task.environment, "secrets": task_secrets(task)}
    return {
        name: unhidden(value, stored[name])
        if name in stored and isinstance(value, Mapping)
        else value
        for name, value in changes.items()
    }


def _enqueue_in(
    actor: User, given: str | int | None, chosen: Sequence[tuple[int, Any]]
) -> list[tuple[int, Any]]:
    """Answers of those items of one request that name the same queue."""
    if given is None:
        return _drafts(actor, chosen)
    try:
        queue = queue_open_to(actor, given)
    except RpmError as error:
        return [(index, error) for index, _ in chosen]
    facts = facts_for(queue, [item for _, item in chosen], owner_id=actor.pk)
    room = room_to_wait(facts, actor.pk, wanted=len(chosen))
    answers: list[tuple[int, Any]] = []
    tasks: list[Task] = []
    runs: dict[str, int] = {}
    for index, item in chosen:
        try:
            if len(tasks) >= room:
                raise too_many_waiting(facts)
            task = _waiting_task(item, queue, facts, actor=actor, runs=runs)
        except RpmError as error:
            answers.append((index, error))
            continue
        tasks.append(task)
        answers.append((index, task))
    Task.objects.bulk_create(tasks)
    _announce(tasks, facts, actor.pk)
    return answers


def _drafts(actor: User, chosen: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
    answers: list[tuple[int, Any]] = []
    left = _drafts_left(actor)
    for index, item in chosen:
        try:
            if left < 1:
                raise _too_many_drafts()
            answers.append((index, _draft(item, actor)))
            left -= 1
        except RpmError as error:
            answers.append((index, error))
    drafts = [answer for _, answer in answers if isinstance(answer, Task)]
    Task.objects.bulk_create(drafts)
    _record_drafts(drafts, actor)
    return answers


def _draft(description: Description, actor: User) -> Task:
    request = None
    if description.request is not None:
        request = request_texts(description, keys=None)
    check_may_store(actor.pk, description_bytes(description))
    now = timezone.now()
    return with_secrets(
        Task(
            owner=actor,
            is_by_owner=acted_by(actor.pk) is None,
            **columns(description),
            request=request,
            created_at=now,
            changed_at=now,
        ),
        description.secrets,
    )


def _drafts_left(actor: User) -> int:
    """How many more drafts somebody may have; requests at the same moment may exceed it a bit."""
    most: int = settings.RPM_DRAFTS_PER_PERSON
    drafts = Task.objects.filter(owner=actor, state=TaskState.DRAFT)
    return most - drafts.values("pk")[:most].count()


def _too_many_drafts() -> Conflict:
    problem = f"may be {settings.RPM_DRAFTS_PER_PERSON} at most: remove some, or enqueue them"
    return Conflict(f"Drafts of one person {problem}.", fields={"body": problem})


def _record_drafts(drafts: Sequence[Task], actor: User) -> None:
    entries = [
        Entry(kind="task.draft", object_type="task", object_id=task.pk, actor_id=actor.pk)
        for task in drafts
    ]
    events_record(entries, topics=[f"task.{task.pk}" for task in drafts])


def _waiting_task(
    description: Description,
    queue: Queue,
    facts: QueueFacts,
    *,
    actor: User,
    runs: dict[str, int],
) -> Task:
    """A task of the actor's, not stored yet; `runs` remembers ids by shape over many tasks."""
    shape = accept(description, facts, owner_id=actor.pk)
    check_may_store(actor.pk, description_bytes(description))
    digest = shape.digest()
    if digest not in runs:
        runs[digest] = run_ensure(facts.queue_id, shape)
    now = timezone.now()
    return with_secrets(
        Task(
            owner=actor,
            is_by_owner=acted_by(actor.pk) is None,
            queue=queue,
            run_id=runs[digest],
            state=TaskState.QUEUED,
            request=shape.request,
            created_at=now,
            submitted_at=now,
            changed_at=now,
            **columns(description),
        ),
        description.secrets,
    )


def _announce(tasks: Sequence[Task], facts: QueueFacts, actor_id: int) -> None:
    moved = [
        Moved(task.pk, "", 0, facts.queue_id, facts.policy_id, task.owner_id) for task in tasks
    ]
    tasks_announce(moved, to=TaskState.QUEUED, actor_id=actor_id)


def _earlier_or_raise(actor: User, idempotency: Idempotency | None) -> Task:
    """The task of a doubled request that was faster; any other conflict is a fault."""
    task = earlier_task(actor.pk, idempotency)
    if task is None:
        raise Conflict("Something changed meanwhile: try again.")
    return task
