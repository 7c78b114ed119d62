"""Rights on single objects: guardian's rows with direct foreign keys.

A grant vanishes with its object. Rights on a queue: `view_queue`, `enqueue_queue`, `manage_queue`.
"""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _
from guardian.models import GroupObjectPermissionBase, UserObjectPermissionBase

from apps.policies.models.live import Pool
from apps.policies.models.rights import Policy, Queue


class GrantSource(models.TextChoices):
    POLICY = "policy", _("made by its policy")
    PERSON = "person", _("given by a person")


class _Origin(models.Model):
    """Where a grant comes from, so that a policy can take back exactly what it gave."""

    source = models.CharField(
        max_length=8, choices=GrantSource.choices, default=GrantSource.PERSON, editable=False
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        abstract = True


class PolicyUserPermission(UserObjectPermissionBase, _Origin):
    content_object = models.ForeignKey(Policy, on_delete=models.CASCADE)


class PolicyGroupPermission(GroupObjectPermissionBase, _Origin):
    content_object = models.ForeignKey(Policy, on_delete=models.CASCADE)


class PoolUserPermission(UserObjectPermissionBase, _Origin):
    content_object = models.ForeignKey(Pool, on_delete=models.CASCADE)


class PoolGroupPermission(GroupObjectPermissionBase, _Origin):
    content_object = models.ForeignKey(Pool, on_delete=models.CASCADE)


class QueueUserPermission(UserObjectPermissionBase, _Origin):
    content_object = models.ForeignKey(Queue, on_delete=models.CASCADE)


class QueueGroupPermission(GroupObjectPermissionBase, _Origin):
    content_object = models.ForeignKey(Queue, on_delete=models.CASCADE)
