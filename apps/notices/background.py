"""Background work: make notices, and remove old ones."""

from celery import shared_task

from apps.notices.services.notice_maker import notices_make, notices_remove_old


@shared_task(name="notices.make", ignore_result=True)
def make_notices() -> None:
    """Read the event log on; the next notification continues."""
    notices_make()


@shared_task(name="notices.remove_old", ignore_result=True)
def remove_old_notices() -> None:
    """Once an hour."""
    notices_remove_old()
