"""Sends notices by e-mail: to confirmed addresses, with the permissions of now.

A mail is claimed before it is sent, and done once the server has it. A worker that is killed in
between leaves the claim: the same mail, with the same `Message-ID`, is sent again later. So a mail
is never lost that way, and arrives twice only if the server had it already.
"""

import time
from datetime import datetime, timedelta
from email.utils import parseaddr

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Min, QuerySet

from apps.accounts.models import User
from apps.accounts.services.mail import MailNotSent, MailSent, mail_is_set_up, mail_send
from apps.core import clock
from apps.nodes.selectors import is_suspended
from apps.notices.models import Notice, NoticeSettings
from apps.notices.selectors import mail_address, task_notices
from apps.notices.services.mail_text import mail_text
from apps.notices.services.mail_times import is_due

# After a try, the next one is made this much later; after the last, the notices are not mailed.
WAITS = tuple(timedelta(minutes=minutes) for minutes in (2, 5, 15, 60, 240, 720))
RUN_S = 15.0
NOT_CONFIRMED = "Your account has no confirmed e-mail address: an administrator confirms it."


def notices_mail(*, now: datetime | None = None, run_s: float = RUN_S) -> int:
    """Send the mails that are due; returns how many the server took."""
    # A restored database knows mails as due that were sent after the backup.
    if not mail_is_set_up() or is_suspended():
        return 0
    at, until, sent = now or clock.now(), time.monotonic() + run_s, 0
    for row, last in _due(at):
        if time.monotonic() > until:
            break
        sent += _mail(row, last=last, now=at)
    return sent


def _due(now: datetime) -> list[tuple[NoticeSettings, int]]:
    """The users whose mail is due with its last notice; those who waited longest come first."""
    waiting = Notice.objects.filter(is_mail_due=True).order_by().values("user")
    found = list(waiting.annotate(oldest=Min("at"), last=Max("pk")).order_by("oldest", "user"))
    users = [one["user"] for one in found]
    NoticeSettings.objects.bulk_create(
        [NoticeSettings(user_id=pk) for pk in users], ignore_conflicts=True
    )
    rows = NoticeSettings.objects.select_related("user").in_bulk(users)
    return [
        (row, one["last"])
        for one in found
        if (row := rows.get(one["user"]))
        and _may_try(row, now)
        and is_due(row, oldest=one["oldest"], now=now)
    ]


def _mail(row: NoticeSettings, *, last: int, now: datetime) -> bool:
    """Send the mail of one user, unless another worker does; whether the server took it."""
    before = _claimed(row)
    row.mail_until, row.tries, row.tried_at = row.mail_until or last, row.tries + 1, now
    if not before.update(tried_at=now, tries=row.tries, mail_until=row.mail_until):
        return False
    # Not as it was when the run began: others may have been sent mails for a while.
    row.user = User.objects.get(pk=row.user_id)
    outcome = _send(row)
    is_last = row.tries > len(WAITS) or not mail_address(row.user)
    if isinstance(outcome, MailNotSent) and not is_last:
        _claimed(row).update(problem=outcome.reason)
        return False
    _done(row, problem=outcome.reason if isinstance(outcome, MailNotSent) else "")
    return isinstance(outcome, MailSent)


def _may_try(row: NoticeSettings, now: datetime) -> bool:
    """Whether the pause after the last try is over."""
    if row.tried_at is None or not row.tries:
        return True
    return now >= row.tried_at + WAITS[min(row.tries, len(WAITS)) - 1]


def _send(row: NoticeSettings) -> MailSent | MailNotSent | None:
    """What the server answered; None where nothing is left to say."""
    address = mail_address(row.user)
    if not address:
        return MailNotSent(NOT_CONFIRMED)
    found = task_notices(row.user, _of_mail(row))
    if not found:
        return None
    text = mail_text(row.user, found)
    headers = {"Message-ID": _message_id(row), "Auto-Submitted": "auto-generated"}
    return mail_send(to=address, subject=text.subject, text=text.text, headers=headers)


@transaction.atomic
def _done(row: NoticeSettings, *, problem: str) -> None:
    _of_mail(row).update(is_mail_due=False)
    _claimed(row).update(mail_until=0, tries=0, tried_at=None, problem=problem)


def _claimed(row: NoticeSettings) -> QuerySet[NoticeSettings]:
    """The settings, unless another worker has tried since: what it has begun is its own."""
    return NoticeSettings.objects.filter(
        user=row.user_id, tried_at=row.tried_at, tries=row.tries, mail_until=row.mail_until
    )


def _of_mail(row: NoticeSettings) -> QuerySet[Notice]:
    return Notice.objects.filter(user=row.user, is_mail_due=True, pk__lte=row.mail_until)


def _message_id(row: NoticeSettings) -> str:
    """The same for the same notices, however often they are sent."""
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    return f"<notices.{row.user_id}.{row.mail_until}@{domain}>"
