"""Whom a rule lets see into a tenant sees what its work holds there as that of a team."""

import pytest
from guardian.shortcuts import assign_perm

from apps.accounts.models import User
from apps.dashboard.selectors.current_tasks import CurrentTasks, current_tasks_visible_to
from apps.tasks.models import Task
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec
from tests.dashboard.conftest import RunIn
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db


@pytest.fixture
def busy(organisations: Organisations, run_in: RunIn) -> Organisations:
    """One task of Acme runs and one waits."""
    acme = organisations.acme
    described = TaskSpec(name="one", queue=acme.queue.name, command=["true"])
    ids = [task_submit(actor=acme.member, spec=described).pk for _ in range(2)]
    run_in(Task.objects.get(pk=ids[0]), organisations.example.h100, gpu=2000)
    return organisations


def current_tasks_for(user: User) -> CurrentTasks:
    return current_tasks_visible_to(User.objects.get(pk=user.pk))


@pytest.mark.parametrize("permission", ["view_policy", "view_queue"])
def test_tasks_of_a_policy_visible_by_a_rule_are_counted_as_such(
    busy: Organisations, charlie: User, permission: str
) -> None:
    acme = busy.acme
    before = current_tasks_for(charlie)

    assign_perm(permission, charlie, acme.team if permission == "view_policy" else acme.queue)
    after = current_tasks_for(charlie)

    assert (before.attempts, bool(before.elsewhere)) == ((), True)
    assert acme.queue.pk not in before.waiting
    assert [one.policy_id for one in after.attempts] == [acme.team.pk]
    assert not after.elsewhere
    assert acme.queue.pk in after.waiting


def test_a_rule_on_one_policy_tells_nothing_of_another_tenant(
    busy: Organisations, charlie: User
) -> None:
    assign_perm("view_policy", charlie, busy.rival.team)

    current = current_tasks_for(charlie)

    assert (current.attempts, bool(current.elsewhere)) == ((), True)
