"""Numbered revisions of the whole configuration."""

from django.conf import settings
from django.db import models


class Revision(models.Model):
    """The full document, policies included, after a provisioning or a change of a policy."""

    number = models.PositiveBigIntegerField(primary_key=True)
    document = models.JSONField()
    at = models.DateTimeField(auto_now_add=True)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    note = models.CharField(max_length=1000, blank=True)

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"revision {self.number}"
