"""Background work: mail."""

from celery import shared_task

from apps.accounts.services.mail import invitations_mail


@shared_task(name="accounts.send_mail", ignore_result=True)
def accounts_send_mail() -> None:
    """What waits to be sent; the next ring goes on."""
    invitations_mail()
