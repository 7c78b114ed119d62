"""The origin of a permission on a single object."""

from django.conf import settings
from django.db import models


class GrantSource(models.TextChoices):
    POLICY = "policy", "made by its policy"
    PERSON = "person", "given by a person"


class GrantOrigin(models.Model):
    """Where a grant comes from, so that a policy can revoke exactly what it granted."""

    source = models.CharField(
        max_length=8, choices=GrantSource.choices, default=GrantSource.PERSON, editable=False
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True, null=True, editable=False)

    class Meta:
        abstract = True
