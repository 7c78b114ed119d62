"""Permissions on single objects: guardian's rows with direct foreign keys.

A grant is deleted with its object. Permissions on a policy: `view_policy`, `enqueue_policy`,
`manage_policy`, which reach its queues, and `exceed_limit_policy`, which does not; on a queue:
`view_queue`, `enqueue_queue`, `manage_queue`. Grants of a policy itself and grants of people are
separate rows, so that neither is lost with the other.
"""

from django.conf import settings
from django.db import models
from guardian.models import GroupObjectPermissionBase, UserObjectPermissionBase

from apps.accounts.models.grants import GrantOrigin
from apps.policies.models.live import Pool
from apps.policies.models.policies import Policy, Queue


class PolicyUserPermission(UserObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Policy, on_delete=models.CASCADE)

    class Meta:
        unique_together = ["user", "permission", "content_object", "source"]


class PolicyGroupPermission(GroupObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Policy, on_delete=models.CASCADE)

    class Meta:
        unique_together = ["group", "permission", "content_object", "source"]


class PoolUserPermission(UserObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Pool, on_delete=models.CASCADE)


class PoolGroupPermission(GroupObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Pool, on_delete=models.CASCADE)


class QueueUserPermission(UserObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Queue, on_delete=models.CASCADE)


class QueueGroupPermission(GroupObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Queue, on_delete=models.CASCADE)


class PolicyMember(models.Model):
    """A user to whom a restricted policy applies, while they are in its group."""

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="restricted_members")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="restricted_policies"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["policy", "user"], name="policy_member_once"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} of policy {self.policy_id}"
