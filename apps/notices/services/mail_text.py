"""What a mail with notices says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from apps.accounts.models import User
from apps.accounts.selectors import time_zone_of
from apps.core.terminal import plain
from apps.notices.selectors import TaskNotice

MOST_LINES = 100
_SUBJECT_CHARS = 80
WORDS: Final = {
    "task.running": "started",
    "task.completed": "completed",
    "task.aborted": "was aborted",
    "task.failed": "failed",
    "task.rejected": "was rejected",
    "task.preempted": "was preempted",
    "task.paused": "is paused",
    "task.waiting": "still waits",
}


@dataclass(frozen=True, slots=True)
class MailText:
    subject: str
    text: str


def mail_text(user: User, found: Sequence[TaskNotice]) -> MailText:
    """The mail of these notices, the newest last."""
    name, ordered = settings.RPM_INSTALLATION_NAME, sorted(found, key=lambda one: one.notice.pk)
    lines = [_line(user, one) for one in ordered[-MOST_LINES:]]
    left_out = len(ordered) - len(lines)
    if left_out:
        lines.insert(0, f"{left_out} earlier ones are in the list of notices.")
    if len(ordered) == 1:
        one = ordered[0]
        title = _one_line(one.task.name)
        title = title if len(title) <= _SUBJECT_CHARS else f"{title[: _SUBJECT_CHARS - 1]}…"
        subject = f"{name}: {title} {WORDS.get(one.notice.event_kind, one.notice.kind)}"
    else:
        subject = f"{name}: {len(ordered)} notices"
    end = f"You get this because of your rules in {name}: Settings, Notices."
    return MailText(subject, "\n".join([*lines, "", end, ""]))


def _line(user: User, one: TaskNotice) -> str:
    notice, task = one.notice, one.task
    at = notice.at.astimezone(time_zone_of(user))
    code, minutes = notice.data.get("exit_code"), notice.data.get("minutes")
    facts = [
        f"queue {task.queue.name}" if task.queue is not None else "",
        f"owner {_one_line(str(task.owner))}" if task.owner_id != user.pk else "",
        f"exit code {code}" if code else "",
        f"for more than {minutes} minutes" if minutes else "",
        f"id {task.pk}",
    ]
    word, known = WORDS.get(notice.event_kind, notice.kind), ", ".join(filter(None, facts))
    return f"{at:%Y-%m-%d %H:%M %Z}  {_one_line(task.name)} {word} ({known})"


def _one_line(text: str) -> str:
    """Names of tasks are their owners': no line breaks and control characters."""
    return " ".join(plain(text).split())
