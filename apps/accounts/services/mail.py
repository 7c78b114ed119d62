"""Sends mail by the SMTP server of the installation, if there is one."""

import smtplib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import Invitation, MailState
from apps.core.keyring import CannotUnseal, unseal

BACKEND = "django.core.mail.backends.smtp.EmailBackend"
# A worker died while it was sending: another one tries again after this time.
RETRY_AFTER = timedelta(minutes=2)
MOST_AT_ONCE = 50
MOST_SAID = 500


@dataclass(frozen=True, slots=True)
class MailSent:
    """The server took the mail."""


@dataclass(frozen=True, slots=True)
class MailNotSent:
    """The server did not take it; `reason` is its answer, or why it could not be reached."""

    reason: str


def mail_is_set_up() -> bool:
    """Whether RPM_SMTP_HOST names a server."""
    return bool(settings.EMAIL_HOST)


def mail_send(
    *, to: str, subject: str, text: str, headers: Mapping[str, str] | None = None
) -> MailSent | MailNotSent:
    """Hand one mail to the server; never called inside a transaction.

    Args:
        headers: further ones, such as a `Message-ID` that stays the same when it is sent again.
    """
    if not mail_is_set_up():
        return MailNotSent("No mail server is set up: RPM_SMTP_HOST is empty.")
    connection = get_connection(BACKEND)
    message = EmailMessage(subject, text, to=[to], connection=connection)
    message.extra_headers.update(headers or {})
    try:
        message.send()
    except (smtplib.SMTPException, OSError, ValueError) as error:
        return MailNotSent(_words(error)[:MOST_SAID])
    return MailSent()


def mail_send_test(*, to: str) -> MailSent | MailNotSent:
    """Send a test mail."""
    name = settings.RPM_INSTALLATION_NAME
    return mail_send(
        to=to,
        subject=f"Test mail from {name}",
        text=f"{name} can send mail: invitations will arrive like this one.\n",
    )


def invitations_mail() -> int:
    """Send the mails of invitations that wait for it, each once.

    Returns:
        How many the server took.
    """
    sent = 0
    for invitation in _waiting(timezone.now())[:MOST_AT_ONCE]:
        # Only one worker gets it, and none a link that was replaced meanwhile.
        claimed = Invitation.objects.filter(
            pk=invitation.pk,
            token_hash=invitation.token_hash,
            mail_state=MailState.WAITING,
            mail_tried_at=invitation.mail_tried_at,
        )
        if not claimed.update(mail_tried_at=timezone.now()):
            continue
        outcome = _send(invitation)
        is_sent = isinstance(outcome, MailSent)
        sent += is_sent
        Invitation.objects.filter(pk=invitation.pk, token_hash=invitation.token_hash).update(
            mail_state=MailState.SENT if is_sent else MailState.FAILED,
            mail_detail=outcome.reason if isinstance(outcome, MailNotSent) else "",
            sealed_link="",
        )
    return sent


def _waiting(now: datetime) -> list[Invitation]:
    late = Q(mail_tried_at__isnull=True) | Q(mail_tried_at__lt=now - RETRY_AFTER)
    rows = Invitation.objects.filter(late, mail_state=MailState.WAITING)
    return list(rows.select_related("user", "created_by").order_by("pk"))


def _send(invitation: Invitation) -> MailSent | MailNotSent:
    try:
        link = unseal(invitation.sealed_link, context=invitation.link_context)
    except CannotUnseal as error:
        return MailNotSent(error.detail)
    name, host = settings.RPM_INSTALLATION_NAME, invitation.created_by
    asks = f"{host} invites you to {name}." if host else f"You are invited to {name}."
    verb = "sign in" if invitation.user.is_pending else "set another password"
    until = f"{invitation.expires_at:%-d %B %Y, %H:%M} UTC"
    return mail_send(
        to=invitation.user.email,
        subject=f"Your invitation to {name}" if invitation.user.is_pending else f"Your {name}",
        text=f"{asks}\n\nFollow this link to {verb}. It works once, until {until}:\n\n{link}\n",
    )


def _words(error: Exception) -> str:
    """The server's own words, where it said something."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return (
            "; ".join(f"{code} {_text(said)}" for code, said in error.recipients.values())
            or "The server refused the address."
        )
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {_text(error.smtp_error)}"
    if isinstance(error, OSError) and error.strerror:
        return f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}: {error.strerror}"
    return f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}: {str(error) or type(error).__name__}"


def _text(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said
