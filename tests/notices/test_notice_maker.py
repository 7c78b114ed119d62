"""Notices follow from the event log: each once, by the permissions of their users."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.accounts.services.groups import group_members_remove
from apps.configuration.services.rules import RuleSubjects, rule_grant, rule_remove
from apps.core import clock
from apps.events.models import Event
from apps.notices.models import Notice, NoticeCursor
from apps.notices.selectors import notices_visible_to, unread_count
from apps.notices.services import notice_maker
from apps.notices.services.notice_maker import (
    KEPT_FOR,
    MOST_NOTICES,
    notices_remove_old,
)
from apps.notices.services.read_marks import notices_mark_read
from apps.notices.services.rules import notice_rule_create
from apps.tasks.models import Task
from apps.tasks.services.holds import task_hold
from apps.tasks.services.stop import task_abort
from tests.notices.conftest import Happen, Submit, notices_make
from tests.people import Example

pytestmark = pytest.mark.django_db


def noticed(user: User) -> list[str]:
    return list(
        Notice.objects.filter(user=user).order_by("pk").values_list("event_kind", flat=True)
    )


def test_a_rule_tells_its_user_what_happens_from_then_on(
    alice: User, bob: User, submit: Submit, happen: Happen
) -> None:
    task = submit(alice)
    happen(task, "task.running")
    notice_rule_create(user=alice, scope="own", kinds=["started", "failed"])
    notice_rule_create(user=bob, scope="own", kinds=["started", "failed"])
    happen(task, "task.running")
    happen(task, "task.completed")
    event = happen(task, "task.failed", exit_code=3)

    notices_make()
    notices_make()

    assert noticed(alice) == ["task.running", "task.failed"]
    assert noticed(bob) == []
    last = Notice.objects.latest("pk")
    assert (last.event_id, last.data, last.kind) == (event.pk, {"exit_code": 3}, "failed")
    assert unread_count(alice) == 2


def test_what_a_service_does_makes_a_notice(alice: User, root: User, submit: Submit) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["ended"])
    task_abort(actor=root, task=submit(alice))

    notices_make()

    assert noticed(alice) == ["task.aborted"]


def test_several_rules_tell_of_one_event_once(
    root: User, example: Example, submit: Submit, happen: Happen
) -> None:
    for scope in ({"scope": "queue", "queue": example.dev_queue}, {"scope": "own"}):
        notice_rule_create(user=root, kinds=["failed"], **scope)
    notice_rule_create(user=root, scope="policy", policy=example.dev, kinds=["failed"])
    happen(submit(root), "task.failed")

    notices_make()

    assert noticed(root) == ["task.failed"]


def test_the_manager_of_a_queue_gets_notices_as_long_as_they_manage_it(
    root: User, bob: User, alice: User, example: Example, submit: Submit, happen: Happen
) -> None:
    target = Target(RuleKind.QUEUE, str(example.dev_queue.pk))
    rule_grant(actor=root, target=target, level=Level.MANAGE, subjects=RuleSubjects(users=(bob,)))
    notice_rule_create(user=bob, scope="queue", queue=example.dev_queue, kinds=["failed"])
    task = submit(alice)
    happen(task, "task.failed")
    notices_make()
    assert noticed(bob) == ["task.failed"]

    rule_remove(actor=root, target=target, level=Level.MANAGE)
    happen(task, "task.failed")
    notices_make()

    assert noticed(bob) == ["task.failed"]


def test_nothing_is_shown_of_tasks_that_the_user_may_no_longer_see(
    root: User, bob: User, alice: User, example: Example, submit: Submit, happen: Happen
) -> None:
    target = Target(RuleKind.POLICY, str(example.dev.pk))
    rule_grant(actor=root, target=target, level=Level.MANAGE, subjects=RuleSubjects(users=(bob,)))
    notice_rule_create(user=bob, scope="policy", policy=example.dev, kinds=["failed"])
    happen(submit(alice), "task.failed")
    notices_make()
    assert notices_visible_to(bob).count() == unread_count(bob) == 1

    rule_remove(actor=root, target=target, level=Level.MANAGE)
    group_members_remove(actor=root, group=Group.objects.get(name="dev"), users=[bob])

    assert notices_visible_to(bob).count() == unread_count(bob) == 0


def test_tasks_that_are_removed_take_their_notices_from_the_list(
    alice: User, submit: Submit, happen: Happen
) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    task = submit(alice)
    happen(task, "task.failed")
    notices_make()

    assert notices_visible_to(alice).exists()

    Task.objects.filter(pk=task.pk).delete()

    assert not notices_visible_to(alice).exists()


def test_an_array_has_notices_and_its_elements_have_none(
    alice: User, submit: Submit, happen: Happen
) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    array, element = submit(alice, "array"), submit(alice, "element")
    Task.objects.filter(pk=element.pk).update(array=array, array_index=0)
    happen(element, "task.failed")
    happen(array, "task.failed")

    notices_make()

    assert list(Notice.objects.values_list("task_id", flat=True)) == [array.pk]


def test_a_deactivated_user_gets_no_notices(alice: User, submit: Submit, happen: Happen) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    task = submit(alice)
    User.objects.filter(pk=alice.pk).update(is_active=False)
    happen(task, "task.failed")

    notices_make()

    assert noticed(alice) == []


def test_a_task_that_waits_for_long_makes_one_notice(
    alice: User, root: User, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["waiting"], wait_minutes=30)
    notice_rule_create(user=root, scope="own", kinds=["waiting"], wait_minutes=30)
    task, held, later = submit(alice), submit(alice, "held"), submit(alice, "later")
    task_hold(actor=alice, task=held)
    began = timezone.now()
    Task.objects.filter(pk=later.pk).update(submitted_at=began + timedelta(minutes=30))
    notices_make()
    assert noticed(alice) == []

    for minutes in (29, 32, 34):
        monkeypatch.setattr(clock, "now", lambda m=minutes: began + timedelta(minutes=m))
        notices_make()

    notice = Notice.objects.get()
    assert (notice.task_id, notice.kind, notice.data) == (task.pk, "waiting", {"minutes": 30})


def test_notices_of_one_user_are_bounded_and_the_newest_stay(
    alice: User, submit: Submit, happen: Happen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice_maker, "MOST_NOTICES", 5)
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    task = submit(alice)
    events = []
    for _ in range(3):
        events += [happen(task, "task.failed").pk for _ in range(3)]
        notices_make()

    kept = Notice.objects.order_by("pk").values_list("event_id", flat=True)
    assert list(kept) == events[-5:]
    assert MOST_NOTICES == 1000


def test_a_burst_of_events_takes_few_statements_and_bounded_rows(
    alice: User, submit: Submit, happen: Happen
) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    task = submit(alice)
    one = happen(task, "task.failed")
    facts = {"kind": one.kind, "object_type": "task", "object_id": str(task.pk)}
    Event.objects.bulk_create(
        [Event(queue_id=one.queue_id, policy_id=one.policy_id, **facts) for _ in range(9_999)],
        batch_size=1000,
    )

    with CaptureQueriesContext(connection) as asked:
        assert notices_make() >= 10_000

    assert Notice.objects.count() == MOST_NOTICES
    assert Notice.objects.latest("pk").event_id == Event.objects.latest("pk").pk
    assert len(asked) < 400


def test_a_step_makes_a_bounded_number_and_the_next_ones_the_rest(
    alice: User, root: User, submit: Submit, happen: Happen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice_maker, "NOTICES_AT_ONCE", 3)
    steps: list[int] = []
    store = notice_maker._store

    def counted(made: notice_maker.Made) -> None:
        steps.append(sum(map(len, made.values())))
        store(made)

    monkeypatch.setattr(notice_maker, "_store", counted)
    task = submit(alice)
    assert task.queue is not None
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    notice_rule_create(user=root, scope="queue", queue=task.queue, kinds=["failed"])
    events = [happen(task, "task.failed").pk for _ in range(5)]

    notices_make()

    assert [one for one in steps if one] == [4, 4, 2]
    for user in (alice, root):
        mine = Notice.objects.filter(user=user).order_by("pk")
        assert list(mine.values_list("event_id", flat=True)) == events


def test_an_interrupted_step_is_repeated_as_a_whole(
    alice: User, submit: Submit, happen: Happen, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    happen(submit(alice), "task.failed")
    store = notice_maker._store

    def dies(made: Any) -> None:
        store(made)
        raise KeyboardInterrupt

    monkeypatch.setattr(notice_maker, "_store", dies)
    with pytest.raises(KeyboardInterrupt):
        notices_make()
    assert noticed(alice) == []

    monkeypatch.setattr(notice_maker, "_store", store)
    notices_make()

    assert noticed(alice) == ["task.failed"]


def test_old_notices_are_removed(alice: User, submit: Submit, happen: Happen) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    happen(submit(alice), "task.failed")
    notices_make()

    assert notices_remove_old() == 0
    assert notices_remove_old(now=timezone.now() + KEPT_FOR) == 1


def test_notices_are_marked_as_read_by_their_user_alone(
    alice: User, bob: User, submit: Submit, happen: Happen
) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    task = submit(alice)
    for _ in range(3):
        happen(task, "task.failed")
    notices_make()
    first = Notice.objects.earliest("pk")

    assert notices_mark_read(user=bob) == notices_mark_read(user=bob, ids=[first.pk]) == 0
    assert notices_mark_read(user=alice, ids=[first.pk]) == 1
    assert unread_count(alice) == 2
    assert notices_mark_read(user=alice) == 2


def test_the_cursor_begins_where_the_log_ends(alice: User, submit: Submit, happen: Happen) -> None:
    event = happen(submit(alice), "task.failed")

    notices_make()

    assert NoticeCursor.objects.get().event_id >= event.pk
