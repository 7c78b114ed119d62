"""Background work: mail, and sessions that are over."""

from celery import shared_task

from apps.accounts.services.mail import invitations_mail
from apps.accounts.services.sessions import sessions_prune


@shared_task(name="accounts.send_mail", ignore_result=True)
def accounts_send_mail() -> None:
    """Send waiting mails; the next notification continues."""
    invitations_mail()


@shared_task(name="accounts.remove_sessions", ignore_result=True)
def accounts_remove_sessions() -> None:
    """Remove expired sessions and their `PersonSession` rows."""
    sessions_prune()
