"""Tasks that start after others have ended as needed."""

import random
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from apps.accounts.models import User
from apps.allocation.explanation import explain_task
from apps.allocation.services import run_pass
from apps.core.errors import BadInput, Conflict, NotAllowed
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES
from apps.tasks.models import Attempt, Task, TaskDependency
from apps.tasks.models.dependencies import DependencyKind, outcome_of
from apps.tasks.selectors.dependencies import dependencies_of
from apps.tasks.services import dependencies as service
from apps.tasks.services.dependencies import Dependency, task_set_dependencies
from apps.tasks.services.enqueue.submission import task_create, task_enqueue, task_resume
from apps.tasks.services.holds import task_hold, task_release
from apps.tasks.services.retention import ended_tasks_remove
from apps.tasks.services.stop import task_abort, task_dequeue
from apps.tasks.task_spec import TaskSpec
from tests.allocation.state import begin, end, enqueue, make_node, states
from tests.people import Example

pytestmark = pytest.mark.django_db
OK, ANY, FAILED = DependencyKind.OK, DependencyKind.ANY, DependencyKind.FAILED


@pytest.fixture
def served(example: Example) -> Example:
    make_node(example.bare_metal, name="b1")
    return example


def link(actor: User, task: Task, *after: Task, when: DependencyKind = OK) -> Task:
    return task_set_dependencies(
        actor=actor, task=task, after=[Dependency(one.pk, when) for one in after]
    )


def finish(*, code: int = 0) -> None:
    """End all attempts that run, with this exit code."""
    attempts = list(Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES))
    begin(*attempts)
    for attempt in attempts:
        attempt.refresh_from_db()
        end(attempt, code=code, is_stop_asked=False)


@pytest.mark.parametrize(
    ("when", "code", "want"),
    [
        (OK, 0, "allocated"),
        (ANY, 0, "allocated"),
        (FAILED, 0, "rejected"),
        (OK, 1, "rejected"),
        (ANY, 1, "allocated"),
        (FAILED, 1, "allocated"),
    ],
)
def test_a_task_starts_after_another_has_ended_as_it_needs(
    served: Example, alice: User, when: DependencyKind, code: int, want: str
) -> None:
    first, second = enqueue(alice, served.dev_queue, 2)
    link(alice, second, first, when=when)
    run_pass()
    assert states([first, second]) == ["allocated", "queued"]

    finish(code=code)
    assert states([second]) == ["queued"]
    run_pass()

    assert states([second]) == [want]
    second.refresh_from_db()
    assert second.ineligible_code == ""


def test_a_rejection_goes_on_to_what_waits_for_the_rejected_task(
    served: Example, alice: User
) -> None:
    tasks = enqueue(alice, served.dev_queue, 4)
    for before, task in pairwise(tasks):
        link(alice, task, before)

    task_abort(actor=alice, task=tasks[0])
    run_pass()

    assert states(tasks) == ["aborted", "rejected", "rejected", "rejected"]
    resumed = task_resume(actor=alice, task=Task.objects.get(pk=tasks[1].pk))
    run_pass()
    assert states([resumed]) == ["allocated"]
    assert not TaskDependency.objects.filter(task=resumed.pk).exists()


def test_its_reason_names_what_it_waits_for(
    example: Example, alice: User, charlie: User, root: User
) -> None:
    first, second = enqueue(alice, example.dev_queue, 2)
    (foreign,) = enqueue(charlie, example.research_queue)
    link(root, second, first, foreign)

    found = explain_task(alice, second)

    assert found.code == "dependency"
    assert first.name in found.reasons[0].sentence
    assert foreign.name not in found.reasons[0].sentence
    rows = dependencies_of(alice, second)
    assert [(row.name, row.when, row.outcome) for row in rows] == [
        (first.name, "ok", "waiting"),
        (None, "ok", "waiting"),
    ]
    task_hold(actor=alice, task=second)
    assert [one.code for one in explain_task(alice, second).reasons] == ["on_hold", "dependency"]


def test_a_held_task_waits_for_both(served: Example, alice: User) -> None:
    first, second = enqueue(alice, served.dev_queue, 2)
    link(alice, second, first)
    task_hold(actor=alice, task=second)
    assert task_release(actor=alice, task=second).ineligible_code == "dependency"
    task_hold(actor=alice, task=second)
    run_pass()
    finish()
    run_pass()
    assert states([second]) == ["queued"]

    task_release(actor=alice, task=second)
    run_pass()

    assert states([second]) == ["allocated"]


def test_bad_dependencies_are_refused_with_the_entry(
    example: Example, alice: User, bob: User, charlie: User
) -> None:
    first, second, third = enqueue(alice, example.dev_queue, 3)
    (foreign,) = enqueue(charlie, example.research_queue)
    draft = task_create(actor=alice, spec=TaskSpec(name="d", command=["true"]))
    ended = task_abort(actor=alice, task=enqueue(alice, example.dev_queue)[0])
    link(alice, second, first)
    link(alice, third, second)

    def problem(*after: UUID) -> str:
        with pytest.raises(BadInput) as caught:
            task_set_dependencies(actor=alice, task=first, after=[Dependency(pk) for pk in after])
        return str(caught.value.fields)

    assert "no task that you see" in problem(foreign.pk)
    assert "no task that you see" in problem(uuid4())
    assert "this task itself" in problem(first.pk)
    assert "waits for this task" in problem(third.pk)
    assert "is a draft" in problem(draft.pk)
    assert "ended in another way" in problem(ended.pk)
    assert "named twice" in problem(second.pk, second.pk)
    assert "at most 64" in problem(*(uuid4() for _ in range(65)))
    with pytest.raises(NotAllowed):
        link(bob, first, second)
    with pytest.raises(Conflict, match="Only waiting tasks"):
        link(alice, draft, first)


def test_a_task_that_is_removed_at_this_moment_is_named(
    served: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    [waits], [other] = (enqueue(alice, served.dev_queue) for _ in range(2))
    refuse = service._refuse

    def removes(after: Any, bad: Any, problem: str) -> None:
        refuse(after, bad, problem)
        if problem == service.UNSEEN:
            Task.objects.filter(pk=other.pk).delete()

    monkeypatch.setattr(service, "_refuse", removes)

    with pytest.raises(BadInput, match=r"after\.0\.task"):
        task_set_dependencies(
            actor=alice, task=waits, after=[Dependency(other.pk, DependencyKind.ANY)]
        )


def test_tasks_that_wait_for_one_are_bounded(
    example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_DEPENDENTS", 1)
    first, second, third = enqueue(alice, example.dev_queue, 3)
    link(alice, second, first)
    link(alice, second, first)

    with pytest.raises(Conflict, match="has 1 tasks that wait for it"):
        link(alice, third, first)


def test_tasks_that_wait_in_a_row_are_bounded(
    example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_STEPS", 2)
    tasks = enqueue(alice, example.dev_queue, 4)
    for first, second in pairwise(tasks[:3]):
        link(alice, second, first)

    with pytest.raises(Conflict, match="Too many tasks wait for this one: at most 2 after each"):
        link(alice, tasks[0], tasks[3])


def test_others_leave_the_owner_tasks_that_may_wait_for_theirs(
    example: Example, alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_OF_OTHERS", 1)
    first, own = enqueue(alice, example.dev_queue, 2)
    second, third = enqueue(bob, example.dev_queue, 2)
    link(bob, second, first)

    with pytest.raises(Conflict, match="has 1 tasks that wait for it: only tasks of its owner"):
        link(bob, third, first)
    link(alice, own, first)


def test_a_pass_rejects_a_bounded_number_of_tasks(
    served: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SETTLED_AT_ONCE", 2)
    first, *others = enqueue(alice, served.dev_queue, 4)
    for one in others:
        link(alice, one, first)
    task_abort(actor=alice, task=first)

    run_pass()
    assert sorted(states(others)) == ["queued", "rejected", "rejected"]

    run_pass()
    assert states(others) == ["rejected"] * 3


def test_a_dequeued_task_waits_for_none_any_more(served: Example, alice: User) -> None:
    first, second = enqueue(alice, served.dev_queue, 2)
    link(alice, second, first)
    task_enqueue(
        actor=alice, task=task_dequeue(actor=alice, task=second), queue=served.dev_queue.name
    )

    run_pass()

    assert states([first, second]) == ["allocated", "allocated"]
    assert not TaskDependency.objects.exists()


def test_an_ended_task_stays_until_a_pass_has_acted_on_its_end(
    example: Example, alice: User
) -> None:
    first, second = enqueue(alice, example.dev_queue, 2)
    link(alice, second, first, when=ANY)
    task_abort(actor=alice, task=first)

    assert ended_tasks_remove([first.pk]) == 0
    run_pass()
    assert ended_tasks_remove([first.pk]) == 1
    second.refresh_from_db()
    assert (second.state, second.ineligible_code) == ("queued", "")


@pytest.mark.parametrize("seed", range(3))
def test_in_any_order_no_task_starts_before_what_it_waits_for_and_all_end(
    served: Example, alice: User, seed: int
) -> None:
    chance = random.Random(seed)
    tasks = enqueue(alice, served.dev_queue, 9)
    wanted: dict[UUID, list[Dependency]] = {}
    for at, task in enumerate(tasks):
        earlier = chance.sample(tasks[:at], k=min(at, chance.randrange(3)))
        wanted[task.pk] = [
            Dependency(one.pk, chance.choice(list(DependencyKind))) for one in earlier
        ]
        if earlier:
            task_set_dependencies(actor=alice, task=task, after=wanted[task.pk])

    for _ in tasks:
        run_pass()
        now = dict(Task.objects.values_list("pk", "state"))
        for pk, after in wanted.items():
            outcomes = {outcome_of(one.when, now[one.task]).value for one in after}
            if now[pk] in {"allocated", "completed", "failed"}:
                assert outcomes <= {"met"}
            elif now[pk] == "rejected":
                assert "unmet" in outcomes
        finish(code=chance.randrange(2))

    run_pass()
    assert set(states(tasks)) <= {"completed", "failed", "rejected"}
