"""Links by which invited people sign in first."""

from django.conf import settings
from django.db import models

from apps.core.keyring import SealContext


class MailState(models.TextChoices):
    NONE = "none", "None"
    WAITING = "waiting", "Waiting"
    SENT = "sent", "Sent"
    FAILED = "failed", "Failed"


class Invitation(models.Model):
    """One link for one person, used once; of its token only a keyed hash is kept.

    A new link takes the place of the old one. `sealed_link` is there only until its mail is sent.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="invitation"
    )
    token_hash = models.CharField(max_length=64, unique=True, editable=False)
    asks_name = models.BooleanField(
        default=False, help_text="No user name was given: the person chooses one."
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    mail_state = models.CharField(
        max_length=8, choices=MailState.choices, default=MailState.NONE, editable=False
    )
    mail_detail = models.CharField(max_length=500, blank=True, editable=False)
    mail_tried_at = models.DateTimeField(null=True, blank=True, editable=False)
    sealed_link = models.TextField(blank=True, editable=False)

    def __str__(self) -> str:
        return f"for {self.user.username}, until {self.expires_at:%Y-%m-%d %H:%M}"

    @property
    def link_context(self) -> SealContext:
        """The seal context of its link."""
        return SealContext("accounts.invitation.link", (self.user_id, self.token_hash))
