"""Only the writers change a state, by transitions that are on the table."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import transaction

from apps.accounts.models import User
from apps.events.models import Event
from apps.tasks.lifecycle import transitions
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.lifecycle.transitions import (
    ADMIT,
    ATTEMPT_EDGES,
    CLOSE_QUEUE,
    REJECT,
    TASK_EDGES,
    AttemptTransition,
    TaskTransition,
    Transition,
)
from apps.tasks.lifecycle.writers import (
    TaskSubject,
    task_transition,
    tasks_lock_and_transition,
    tasks_transition_without_events,
)
from apps.tasks.models import Attempt, Task
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.services.stop import task_abort
from apps.tasks.task_spec import spec_of
from tests.people import Example

ROOT = Path(__file__).parents[3]
WRITERS = "apps/tasks/lifecycle/writers.py"
# Other models with a column `state`.
OTHERS = {"MemberState", "NodeState", "DeviceState"}


def submitted(actor: User, example: Example) -> Task:
    values = {"name": "t", "queue": example.dev_queue.name, "command": ["true"]}
    return task_submit(actor=actor, spec=spec_of(values))


def writes_of_state(tree: ast.AST) -> Iterator[int]:
    """Lines that write a column `state` other than by INSERT, and not with a state of `OTHERS`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="update")):
                values = [word.value for word in node.keywords if word.arg == "state"]
            case ast.Call(func=ast.Attribute(attr="bulk_update")):
                names = [leaf for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)]
                values = [name for name in names if name.value == "state"]
            case ast.Assign(targets=[ast.Attribute(attr="state")]):
                values = [node.value]
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="state"))]):
                values = [node.value]
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                values = [
                    value
                    for key, value in pairs
                    if isinstance(key, ast.Constant) and key.value == "state" and _is_state(value)
                ]
            case _:
                continue
        if any(not OTHERS & _names(value) for value in values):
            yield node.lineno


def _names(value: ast.AST) -> set[str]:
    return {leaf.id for leaf in ast.walk(value) if isinstance(leaf, ast.Name)}


def _is_state(value: ast.AST) -> bool:
    return bool({"TaskState", "AttemptState"} & _names(value))


def files_with_states() -> list[Path]:
    """Product code that knows tasks or attempts."""
    found = []
    for folder in ("apps", "rpm"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "apps.tasks" in text and "/migrations/" not in str(path):
                found.append(path)
    return found


def test_only_the_writers_write_a_state() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files_with_states()
        for line in writes_of_state(ast.parse(path.read_text(encoding="utf-8")))
        if str(path.relative_to(ROOT)) != WRITERS
    ]

    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "Task.objects.filter(pk=1).update(state=TaskState.DRAFT)",
        "rows.update(state='draft', changed_at=now)",
        "Task.objects.bulk_update(rows, ['name', 'state'])",
        "task.state = TaskState.DRAFT",
        "attempt.state = 'lost'",
        "changes['state'] = AttemptState.LOST",
        "changes = {'state': step.state or TaskState.DRAFT}",
    ],
)
def test_a_write_of_a_state_is_found(source: str) -> None:
    assert list(writes_of_state(ast.parse(source))) == [1]


def test_a_new_row_and_the_state_of_a_member_are_no_transitions() -> None:
    source = "Task(state=TaskState.DRAFT)\nrows.update(state=MemberState.EXITED)"

    assert list(writes_of_state(ast.parse(source))) == []


def all_transitions() -> list[Transition]:
    return [one for one in vars(transitions).values() if isinstance(one, Transition)]


def test_each_transition_sets_columns_of_its_model() -> None:
    for one in all_transitions():
        model = Task if isinstance(one, TaskTransition) else Attempt
        columns = {field.attname for field in model._meta.concrete_fields}
        assert {*one.sets, *one.stamps} <= columns
        assert "state" not in one.sets


def test_the_edges_are_those_of_the_transitions() -> None:
    assert ("queued", "allocated") in {(a, b) for a in TASK_EDGES for b in TASK_EDGES[a]}
    assert "running" not in TASK_EDGES["queued"]
    assert ATTEMPT_EDGES["finished"] == ATTEMPT_EDGES["lost"] == frozenset()
    attempts = [one for one in all_transitions() if isinstance(one, AttemptTransition)]
    assert {one.target for one in attempts} == set(AttemptState.values)


@pytest.mark.django_db
def test_only_those_in_a_source_state_change(alice: User, example: Example) -> None:
    waiting, ended = submitted(alice, example), submitted(alice, example)
    task_abort(actor=alice, task=ended)

    changed = tasks_lock_and_transition(
        REJECT, [waiting.pk, ended.pk], columns={"state_detail": "The queue is closed."}
    )

    assert [(one.id, one.data["from"], one.queue_id) for one in changed] == [
        (waiting.pk, "queued", example.dev_queue.pk)
    ]
    waiting.refresh_from_db()
    assert (waiting.state, waiting.state_detail) == ("rejected", "The queue is closed.")
    assert Event.objects.filter(kind="task.rejected").count() == 1


@pytest.mark.django_db
def test_another_generation_is_stale(alice: User, example: Example) -> None:
    task = submitted(alice, example)

    assert not task_transition(ADMIT, [TaskSubject(id=task.pk)], generation=7)
    assert not Event.objects.filter(kind="task.allocated").exists()


@pytest.mark.django_db
def test_a_transition_that_is_rolled_back_leaves_no_event(alice: User, example: Example) -> None:
    task = submitted(alice, example)

    with transaction.atomic():
        tasks_lock_and_transition(REJECT, [task.pk])
        transaction.set_rollback(True)

    assert not Event.objects.filter(kind="task.rejected").exists()
    assert Task.objects.get(pk=task.pk).state == TaskState.QUEUED


@pytest.mark.django_db
def test_many_take_as_many_queries_as_one(
    alice: User, example: Example, django_assert_num_queries: object
) -> None:
    tasks = [submitted(alice, example).pk for _ in range(30)]

    with django_assert_num_queries(7):  # type: ignore[operator]  # pytest-django's fixture
        tasks_lock_and_transition(REJECT, tasks[:1])
    with django_assert_num_queries(7):  # type: ignore[operator]  # pytest-django's fixture
        tasks_lock_and_transition(REJECT, tasks[1:])


@pytest.mark.django_db
def test_a_transition_with_an_event_is_not_carried_out_without_it(
    alice: User, example: Example
) -> None:
    task = submitted(alice, example)

    with pytest.raises(ValueError, match=r"task\.rejected"):
        tasks_transition_without_events(REJECT, Task.objects.filter(pk=task.pk))
    assert tasks_transition_without_events(CLOSE_QUEUE, Task.objects.filter(pk=task.pk)) == 1
