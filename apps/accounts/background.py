"""Background work: mail, and sessions that are over."""

from celery import shared_task

from apps.accounts.services.mail import invitations_mail
from apps.accounts.services.sessions import sessions_sweep


@shared_task(name="accounts.send_mail", ignore_result=True)
def accounts_send_mail() -> None:
    """What waits to be sent; the next ring goes on."""
    invitations_mail()


@shared_task(name="accounts.remove_sessions", ignore_result=True)
def accounts_remove_sessions() -> None:
    """Sessions that have run out, and what was told of them."""
    sessions_sweep()
