"""Background work: make notices, send them by e-mail, and remove old ones."""

from celery import shared_task

from apps.notices.services.notice_mail import notices_mail
from apps.notices.services.notice_maker import notices_make, notices_remove_old


@shared_task(name="notices.make", ignore_result=True)
def make_notices() -> None:
    """Read the event log on; the next notification continues."""
    notices_make()


@shared_task(name="notices.send_mail", ignore_result=True)
def mail_notices() -> None:
    """Send the mails that are due; the next notification continues."""
    notices_mail()


@shared_task(name="notices.remove_old", ignore_result=True)
def remove_old_notices() -> None:
    """Once an hour."""
    notices_remove_old()
