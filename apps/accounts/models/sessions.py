"""The browsers in which a person is signed in."""

from django.conf import settings
from django.db import models
from django.utils import timezone

AGENT_LENGTH = 300


class PersonSession(models.Model):
    """What the account page shows of a Django session: its browser, address and last use.

    Django's own row, which has the same hash for a key, is what counts; one without it is over.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="sessions"
    )
    session_key = models.CharField(max_length=40, unique=True, editable=False)
    address = models.CharField(max_length=45, blank=True)
    agent = models.CharField(max_length=AGENT_LENGTH, blank=True)
    began_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-seen_at", "-id"]

    def __str__(self) -> str:
        return f"session {self.pk} of {self.user_id}"
