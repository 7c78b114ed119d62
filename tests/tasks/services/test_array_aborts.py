"""Aborting arrays: all of it or nothing goes on, wherever the request was cut off."""

import pytest
from guardian.shortcuts import assign_perm

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.services.queues import profile_connect
from apps.core.errors import BadInput
from apps.policies.models import Profile, Queue
from apps.tasks.models import Task
from apps.tasks.models.dependencies import DependencyKind
from apps.tasks.selectors.dependencies import dependencies_of
from apps.tasks.services import arrays, stop
from apps.tasks.services.dependencies import Dependency, task_set_dependencies
from apps.tasks.services.queue_order import task_change_queue
from apps.tasks.services.stop import task_abort
from tests.allocation.state import enqueue, states
from tests.people import Example
from tests.tasks.services.array_steps import array_of, counts, stop_all

pytestmark = pytest.mark.django_db


@pytest.fixture
def other_queue(served: Example, root: User) -> Queue:
    profile = Profile.objects.get(name="8xGPU")
    return profile_connect(actor=root, policy=served.dev, profile=profile)


def abort_cut_off(actor: User, array: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends as soon as the array itself is aborted."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stop, "elements_abort", killed)
        with pytest.raises(KeyboardInterrupt):
            task_abort(actor=actor, task=array)


def test_the_next_pass_completes_an_abort_that_was_cut_off(
    served: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = array_of(alice, served, 4)
    run_pass()
    abort_cut_off(alice, array, monkeypatch)
    assert counts(array) == {"allocated": 2, "queued": 2}

    run_pass()

    assert counts(array) == {"stopping": 2, "aborted": 2}
    details = set(array.elements.values_list("state_detail", flat=True))
    assert details == {"aborted by alice"}
    stop_all(array)
    run_pass()
    assert counts(array) == {"aborted": 4}


def test_a_step_asks_a_bounded_number_of_elements_to_stop(
    served: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "STOPPED_AT_ONCE", 1)
    array = array_of(alice, served, 2)
    run_pass()
    abort_cut_off(alice, array, monkeypatch)

    run_pass()
    assert counts(array) == {"allocated": 1, "stopping": 1}
    run_pass()
    assert counts(array) == {"stopping": 2}


def test_a_step_leaves_elements_in_other_queues_alone(
    served: Example, alice: User, other_queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = array_of(alice, served, 4)
    run_pass()
    moved = array.elements.get(array_index=3)
    task_change_queue(actor=alice, task=moved, queue=other_queue.name)
    abort_cut_off(alice, array, monkeypatch)

    run_pass()

    assert states([moved]) == ["queued"]
    assert counts(array) == {"stopping": 2, "aborted": 1, "queued": 1}


def test_a_manager_aborts_no_elements_in_queues_of_others(
    served: Example, alice: User, charlie: User, other_queue: Queue
) -> None:
    for permission in ("view_queue", "manage_queue"):
        assign_perm(permission, charlie, served.dev_queue)
    array = array_of(alice, served, 4)
    run_pass()
    moved = array.elements.get(array_index=3)
    task_change_queue(actor=alice, task=moved, queue=other_queue.name)

    task_abort(actor=charlie, task=array)
    assert states([moved]) == ["queued"]
    assert counts(array) == {"stopping": 2, "aborted": 1, "queued": 1}

    task_abort(actor=alice, task=array)
    assert states([moved]) == ["aborted"]


def test_what_waits_for_an_aborted_array_waits_for_its_last_element(
    served: Example, alice: User
) -> None:
    array = array_of(alice, served, 2)
    before, after_it = enqueue(alice, served.dev_queue, 2)
    run_pass()
    edge = [Dependency(array.pk, DependencyKind.ANY)]
    task_set_dependencies(actor=alice, task=before, after=edge)
    task_abort(actor=alice, task=array)
    # Also a task that comes to wait for it later.
    task_set_dependencies(actor=alice, task=after_it, after=edge)

    run_pass()

    for task in (before, after_it):
        task.refresh_from_db()
        assert task.ineligible_code == "dependency"
        assert [one.outcome for one in dependencies_of(alice, task)] == ["waiting"]
    stop_all(array)
    run_pass()
    assert states([before, after_it]) == ["allocated", "allocated"]
    assert [one.outcome for one in dependencies_of(alice, before)] == ["met"]


def test_a_task_that_needs_an_aborted_array_to_complete_is_refused(
    served: Example, alice: User
) -> None:
    array = array_of(alice, served, 2)
    (task,) = enqueue(alice, served.dev_queue)
    run_pass()
    task_abort(actor=alice, task=array)

    with pytest.raises(BadInput, match="has ended in another way already"):
        task_set_dependencies(actor=alice, task=task, after=[Dependency(array.pk)])
