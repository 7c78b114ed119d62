"""Notices: the bell in the head of each page, and the list."""

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from apps.accounts.models import User
from apps.dashboard.cards.timeline import TASK_EVENTS
from apps.dashboard.cards.words import duration_text
from apps.dashboard.live import Sharing, card, key_id
from apps.notices.selectors import TaskNotice, notices_visible_to, task_notices, unread_count
from apps.notices.topics import notices_topic

MOST_ROWS = 50
# More are shown as `99+`.
MOST_SHOWN = 99
_WAITING = ("wait", "hourglass", "Still waiting")


@dataclass(frozen=True, slots=True)
class NoticeBell:
    """`count` is empty where nothing is unread."""

    unread: int
    count: str
    topics: tuple[str, ...]
    announce: str = ""


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """What happened to which task; `kind` is the colour of the icon."""

    id: int
    at: datetime
    is_unread: bool
    kind: str
    icon: str
    title: str
    name: str
    href: str
    text: str


@dataclass(frozen=True, slots=True)
class NoticeRows:
    """One page of them; `older` is the key of the next, empty on the last one."""

    rows: tuple[NoticeRow, ...]
    unread: int
    older: str
    is_first: bool
    topics: tuple[str, ...]
    announce: str


@card("notice_bell", Sharing.NOBODY)
def load_notice_bell(user: User, key: str) -> NoticeBell | None:
    """For every user."""
    if key:
        return None
    unread = unread_count(user)
    count = f"{MOST_SHOWN}+" if unread > MOST_SHOWN else str(unread or "")
    return NoticeBell(unread, count, topics=(notices_topic(user.pk),))


@card("notice_rows", Sharing.NOBODY)
def load_notice_rows(user: User, key: str) -> NoticeRows | None:
    """The newest ones, or with a key those before that one."""
    if key and not key_id(key):
        return None
    notices = notices_visible_to(user)
    unread = notices.filter(read_at__isnull=True).count()
    if key:
        notices = notices.filter(pk__lt=key_id(key))
    page = list(notices[: MOST_ROWS + 1])
    is_last = len(page) <= MOST_ROWS
    rows = tuple(_row(one) for one in task_notices(user, page[:MOST_ROWS]))
    return NoticeRows(
        rows,
        unread,
        older="" if is_last else str(page[MOST_ROWS - 1].pk),
        is_first=not key,
        topics=(notices_topic(user.pk),),
        announce=f"{unread} unread",
    )


def _row(one: TaskNotice) -> NoticeRow:
    notice, task = one.notice, one.task
    kind, icon, title = TASK_EVENTS.get(notice.event_kind, _WAITING)
    code, minutes = notice.data.get("exit_code"), notice.data.get("minutes")
    words = [
        f"queue {task.queue.name}" if task.queue is not None else "",
        f"owner {task.owner}" if task.owner_id != notice.user_id else "",
        f"exit code {code}" if code else "",
        f"for more than {duration_text(minutes * 60)}" if minutes else "",
    ]
    return NoticeRow(
        id=notice.pk,
        at=notice.at,
        is_unread=notice.read_at is None,
        kind=kind,
        icon=icon,
        title=title,
        name=task.name,
        href=reverse("task_detail", args=[task.pk]),
        text=", ".join(filter(None, words)),
    )
