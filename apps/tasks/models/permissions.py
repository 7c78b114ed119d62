"""Permissions on single tasks: rows of guardian, which are deleted with their task.

`view_task` and `log_task` together are the permission to read a task and its log.
"""

from django.db import models
from guardian.models import GroupObjectPermissionBase, UserObjectPermissionBase

from apps.accounts.models.grants import GrantOrigin
from apps.tasks.models.tasks import Task


class TaskUserPermission(UserObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Task, on_delete=models.CASCADE)


class TaskGroupPermission(GroupObjectPermissionBase, GrantOrigin):
    content_object = models.ForeignKey(Task, on_delete=models.CASCADE)
