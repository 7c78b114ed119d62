"""Rights on single objects: guardian's rows with direct foreign keys.

A grant vanishes with its object. Rights on a queue: `view_queue`, `enqueue_queue`, `manage_queue`.
"""

from django.db import models
from guardian.models import GroupObjectPermissionBase, UserObjectPermissionBase

from apps.accounts.models.grants import GrantOrigin
from apps.policies.models.live import Pool
from apps.policies.models.rights import Policy, Queue


class PolicyUserPermission(UserObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Policy, on_delete=models.CASCADE)


class PolicyGroupPermission(GroupObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Policy, on_delete=models.CASCADE)


class PoolUserPermission(UserObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Pool, on_delete=models.CASCADE)


class PoolGroupPermission(GroupObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Pool, on_delete=models.CASCADE)


class QueueUserPermission(UserObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Queue, on_delete=models.CASCADE)


class QueueGroupPermission(GroupObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Queue, on_delete=models.CASCADE)
