"""Reads of notices and rules: only what their user may see at the moment of reading."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Prefetch, QuerySet

from apps.access.selectors import (
    policies_managed_by,
    policies_visible_to,
    queues_managed_by,
    queues_visible_to,
)
from apps.accounts.models import User
from apps.accounts.selectors import Person
from apps.accounts.services.mail import mail_is_set_up
from apps.notices.models import Notice, NoticeRule, NoticeSettings
from apps.policies.models import Policy, Queue
from apps.tasks.models import Task
from apps.tasks.selectors.visibility import tasks_visible_to, without_hidden_queues


@dataclass(frozen=True, slots=True)
class TaskNotice:
    """A notice with its task; `task.queue` is None where the user sees the task alone."""

    notice: Notice
    task: Task


def rules_visible_to(user: Person) -> QuerySet[NoticeRule]:
    """The user's own rules; `queue` or `policy` is None while the user may not see it."""
    if not isinstance(user, User):
        return NoticeRule.objects.none()
    return NoticeRule.objects.filter(user=user).prefetch_related(
        Prefetch("queue", queues_visible_to(user)), Prefetch("policy", policies_visible_to(user))
    )


def queues_to_notice(user: User) -> QuerySet[Queue]:
    """Queues for which the user may have rules."""
    return queues_managed_by(user)


def policies_to_notice(user: User) -> QuerySet[Policy]:
    """Policies for which the user may have rules."""
    return policies_managed_by(user)


def notices_visible_to(user: Person) -> QuerySet[Notice]:
    """The user's notices of tasks that the user sees now, the newest first.

    A user has few notices and may see a million tasks: the tasks are looked up by their ids.
    """
    if not isinstance(user, User):
        return Notice.objects.none()
    return _of_visible_tasks(Notice.objects.filter(user=user), user)


def unread_count(user: User) -> int:
    """How many notices the user has not read."""
    return _of_visible_tasks(Notice.objects.filter(user=user, read_at__isnull=True), user).count()


def task_notices(user: User, notices: Iterable[Notice]) -> list[TaskNotice]:
    """The notices with their tasks, without those whose task the user may not see."""
    found = list(notices)
    tasks = _visible_tasks(user, {one.task_id for one in found})
    return [TaskNotice(one, tasks[one.task_id]) for one in found if one.task_id in tasks]


def mail_address(user: User) -> str:
    """Where notices of this user may be sent: an address that is confirmed; empty for none."""
    is_reached = user.is_active and not user.is_service and not user.is_pending
    is_confirmed = is_reached and not user.is_email_unverified
    return user.email if is_confirmed and mail_is_set_up() else ""


def settings_of(user: User) -> NoticeSettings:
    """When the user gets notices by e-mail; the defaults if nobody has changed it."""
    return NoticeSettings.objects.filter(user=user).first() or NoticeSettings(user=user)


def _of_visible_tasks(notices: QuerySet[Notice], user: User) -> QuerySet[Notice]:
    ids = set(notices.order_by().values_list("task_id", flat=True))
    if not ids:
        return notices.none()
    visible = tasks_visible_to(user).filter(pk__in=ids).order_by().values_list("pk", flat=True)
    return notices.filter(task_id__in=list(visible))


def _visible_tasks(user: User, ids: Iterable[UUID]) -> Mapping[UUID, Task]:
    tasks = tasks_visible_to(user).filter(pk__in=set(ids)).select_related("owner", "queue")
    return {task.pk: task for task in without_hidden_queues(tasks.defer("content"))}
