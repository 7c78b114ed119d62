"""Whom a rule lets see into a tenant sees what its work holds there as that of a team."""

import pytest
from guardian.shortcuts import assign_perm

from apps.accounts.models import User
from apps.dashboard.selectors.work import Work, work_seen_by
from apps.tasks.descriptions import Description
from apps.tasks.models import Task
from apps.tasks.services.enqueueing import task_submit
from tests.dashboard.conftest import RunIn
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db


@pytest.fixture
def busy(organisations: Organisations, run_in: RunIn) -> Organisations:
    """One task of Acme runs and one waits."""
    acme = organisations.acme
    described = Description(name="one", queue=acme.queue.name, command=["true"])
    ids = [task_submit(actor=acme.member, description=described).pk for _ in range(2)]
    run_in(Task.objects.get(pk=ids[0]), organisations.example.h100, gpu=2000)
    return organisations


def seen_by(user: User) -> Work:
    return work_seen_by(User.objects.get(pk=user.pk))


@pytest.mark.parametrize("right", ["view_policy", "view_queue"])
def test_work_of_a_policy_seen_by_a_rule_is_counted_as_such(
    busy: Organisations, charlie: User, right: str
) -> None:
    acme = busy.acme
    before = seen_by(charlie)

    assign_perm(right, charlie, acme.team if right == "view_policy" else acme.queue)
    after = seen_by(charlie)

    assert (before.held, bool(before.elsewhere)) == ((), True)
    assert acme.queue.pk not in before.waiting
    assert [one.policy_id for one in after.held] == [acme.team.pk]
    assert not after.elsewhere
    assert acme.queue.pk in after.waiting


def test_a_rule_on_one_policy_tells_nothing_of_another_tenant(
    busy: Organisations, charlie: User
) -> None:
    assign_perm("view_policy", charlie, busy.rival.team)

    work = seen_by(charlie)

    assert (work.held, bool(work.elsewhere)) == ((), True)
