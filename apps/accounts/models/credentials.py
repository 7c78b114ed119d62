"""Keys for programs, and the one-time token of an empty installation."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from apps.accounts.models.scopes import Scope


class Credential(models.Model):
    """Key and secret of a user or service account; only a keyed hash of the secret is kept."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="credentials"
    )
    key = models.CharField(max_length=32, unique=True, editable=False)
    secret_hash = models.CharField(max_length=64, editable=False)
    label = models.CharField(max_length=100, blank=True)
    scope = models.CharField(
        max_length=16,
        choices=Scope.choices,
        default=Scope.ADMINISTER,
        db_default=Scope.ADMINISTER,
        help_text="What it may be used for; each scope includes those before it.",
    )
    # The credential that asked for this one: it ends no later, and is revoked with it.
    made_with = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="made",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.label or 'Credential'} ({self.key})"

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()


class SetupToken(models.Model):
    """Guards the set-up page of an empty installation; used once, then gone."""

    token_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"made {self.created_at:%Y-%m-%d %H:%M}"
