"""The permissions on single tasks: where their rules are stored, and their sources.

The owner and managers of its queue hold every permission on a task, and users who see the queue
see it. A rule on the task gives reading it with its log, and nothing else. All of them are
evaluated by `apps.access.permissions`.
"""

from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q

from apps.access.filters import NO_ROWS
from apps.access.levels import Level, Resource, RuleKind, resource_register
from apps.access.permissions import holders, permission_sources, rows_held
from apps.access.source_kind import (
    ObjectPermission,
    PermissionHolder,
    PermissionSource,
    PermissionSources,
    SourceKind,
)
from apps.access.sources import source_register
from apps.policies.models import Policy, PolicyMember, Queue
from apps.policies.selectors import people_of_policy
from apps.tasks.models import Task, TaskGroupPermission, TaskUserPermission

VIEW, LOG, MANAGE = "view", "log", "manage"
# To see the task with its queue, which a rule on the task does not give.
QUEUE = "queue"


def _policy_of(task: Task) -> Policy | None:
    return task.queue.policy if task.queue is not None else None


TASKS: Final = Resource(
    RuleKind.TASK,
    "tasks",
    Task,
    TaskUserPermission,
    TaskGroupPermission,
    {Level.READ: (VIEW, LOG)},
    has_kind_rules=False,
    tenant_path="queue__policy__tenant",
    policy_of=_policy_of,
    live=Q(),
    # A draft is in no queue.
    ruled=Q(queue__isnull=False),
    is_managed=True,
    has_few=False,
)


class TaskSource(SourceKind):
    """A source of permissions on tasks alone."""

    verbs = frozenset({VIEW, QUEUE, LOG, MANAGE})

    def gives(self, permission: ObjectPermission) -> bool:
        return permission.resource.kind is RuleKind.TASK and permission.verb in self.verbs


@dataclass(frozen=True, slots=True)
class PermissionOnQueue(TaskSource):
    """The permission on the queue: seeing it shows its tasks, managing it gives all of theirs."""

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        return Q(queue__in=rows_held(Queue, holder, _on_queue(permission)).values("pk"))

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        queue = _live_queue(row)
        if queue is None:
            return NO_ROWS
        return Q(pk__in=holders(queue, _on_queue(permission)).values("pk"))

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        queue = _live_queue(row)
        if queue is not None:
            found = permission_sources(holder.user, _on_queue(permission), queue)
            yield from (one for one in found if not one.is_denial)

    def crosses_tenants(self, permission: ObjectPermission) -> bool:
        # The permission on the queue heeds tenant isolation already.
        return True


@dataclass(frozen=True, slots=True)
class OpenLogs(TaskSource):
    """A policy that lets its group read each other's logs."""

    verbs = frozenset({LOG})

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        named = PolicyMember.objects.filter(user=holder.user).values("policy")
        policies = Policy.objects.filter(
            Q(is_restricted=False) | Q(pk__in=named),
            logs_open_to_group=True,
            group__in=list(holder.groups),
        )
        queues = Queue.objects.filter(removed_at__isnull=True, policy__in=policies.values("pk"))
        return Q(queue__in=queues.values("pk"))

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        queue = _live_queue(row)
        if queue is None or not queue.policy.logs_open_to_group:
            return NO_ROWS
        return Q(pk__in=people_of_policy(queue.policy).values("pk"))

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        queue = _live_queue(row)
        if queue is None or not queue.policy.logs_open_to_group:
            return
        policy = queue.policy
        is_in_group = policy.group_id in holder.groups
        if is_in_group and people_of_policy(policy).filter(pk=holder.user.pk).exists():
            on = (RuleKind.POLICY.value, policy.name)
            yield PermissionSource("open_logs", on, group=policy.group.name)


def register() -> None:
    """Tell `apps.access` of the kind and its sources; called when Django starts."""
    resource_register(TASKS)
    source_register(PermissionOnQueue(), OpenLogs())


def _on_queue(permission: ObjectPermission) -> str:
    """The permission on a queue that gives this one on its tasks."""
    return VIEW if permission.verb in {VIEW, QUEUE} else MANAGE


def _live_queue(task: Task) -> Queue | None:
    queue = task.queue
    return queue if queue is not None and queue.removed_at is None else None
