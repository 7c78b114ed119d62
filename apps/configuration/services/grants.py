"""What policies give by themselves, marked by their source.

A policy lets its group see and use it, or, when restricted, its members in the group. These rows
are made from the policy, its members and the group alone, by one function, which may run
whenever one of the three may have changed.
"""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import Permission

from apps.access.permissions import holders
from apps.accounts.models import User
from apps.accounts.models.grants import GrantSource
from apps.policies.models import Policy, PolicyGroupPermission, PolicyUserPermission, Queue
from apps.policies.selectors import restricted_members_in_group
from apps.tasks.services.stop import tasks_return_to_draft

GRANTED = ("view_policy", "enqueue_policy")
# A row without its id: subject, permission and policy.
Row = tuple[int, int, int]


def policy_grants_sync(*, policies: Iterable[Policy], actor: User | None = None) -> set[int]:
    """Update the grants that these policies give by themselves; removed ones give nothing.

    Returns:
        Ids of the people of added and removed rows; members of groups are not counted.
    """
    known = list(policies)
    live = [policy for policy in known if not policy.is_removed]
    permissions = list(
        Permission.objects.filter(
            content_type__app_label="policies", codename__in=GRANTED
        ).values_list("pk", flat=True)
    )
    groups = {
        (p.group_id, permission, p.pk)
        for p in live
        if not p.is_restricted
        for permission in permissions
    }
    members = restricted_members_in_group(p.pk for p in live if p.is_restricted).values_list(
        "user", "policy"
    )
    people = {(user, permission, policy) for user, policy in members for permission in permissions}
    _rows_replace(PolicyGroupPermission, "group_id", known, groups, actor)
    return _rows_replace(PolicyUserPermission, "user_id", known, people, actor)


def owners_who_may_enqueue(queue: Queue) -> set[int]:
    """Ids of active people who may enqueue, from any source."""
    return set(holders(queue, "enqueue").values_list("pk", flat=True))


def tasks_return_without_permission(*, policy: Policy, reason: str) -> int:
    """Waiting tasks of those who may no longer enqueue become drafts.

    Returns:
        How many.
    """
    return sum(
        tasks_return_to_draft(
            queue_ids=[queue.pk], reason=reason, except_owners=owners_who_may_enqueue(queue)
        )
        for queue in policy.queues.filter(removed_at__isnull=True)
    )


def _rows_replace(
    model: type[Any], who: str, policies: list[Policy], wanted: set[Row], actor: User | None
) -> set[int]:
    """Replace the rows by the wanted ones; the first column of added and removed rows."""
    rows = model._default_manager.filter(
        content_object__in=[policy.pk for policy in policies], source=GrantSource.POLICY
    )
    there = {
        (subject, permission, policy): pk
        for pk, subject, permission, policy in rows.values_list(
            "pk", who, "permission_id", "content_object_id"
        )
    }
    gone = [pk for row, pk in there.items() if row not in wanted]
    model._default_manager.filter(pk__in=gone).delete()
    new = sorted(wanted - set(there))
    model._default_manager.bulk_create(
        (
            model(
                **{who: subject},
                permission_id=permission,
                content_object_id=policy,
                source=GrantSource.POLICY,
                created_by=actor,
            )
            for subject, permission, policy in new
        ),
        ignore_conflicts=True,
    )
    return {row[0] for row in (*new, *(row for row in there if row not in wanted))}
