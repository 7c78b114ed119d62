"""What follows when a user joins or leaves a group.

They may exceed other limits, so that their waiting tasks are grouped again; and restricted policies
apply only to those of their members who are in the group. Memberships change in pages, REST,
identity providers, services and the shell, so this listens to Django's signals.
"""

from collections.abc import Collection
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, pre_delete

from apps.access.levels import RESOURCES
from apps.accounts.models import User
from apps.accounts.services.groups import permissions_change_notify
from apps.configuration.services.grants import policy_grants_sync
from apps.configuration.services.rows import live_lock, live_wait
from apps.core.lock_order import live_configuration_lock_register
from apps.policies.models import Policy, PolicyGroupPermission, PolicyMember
from apps.policies.selectors import EXCEED_LIMIT
from apps.tasks.services.task_groups import tasks_regroup


def connect() -> None:
    """Listen to changes of memberships, once however often it is called."""
    live_configuration_lock_register(live_wait)
    memberships = User.groups.through
    m2m_changed.connect(
        _membership_changed, sender=memberships, dispatch_uid="configuration.membership"
    )
    pre_delete.connect(_before_delete, sender=Group, dispatch_uid="configuration.group.before")
    post_delete.connect(_after_delete, sender=Group, dispatch_uid="configuration.group.after")


def _membership_changed(
    *, instance: User | Group, action: str, reverse: bool, pk_set: set[int] | None, **_: Any
) -> None:
    if action not in {"post_add", "post_remove", "post_clear"}:
        return
    # Without a set, the user left all groups: which ones is no longer known.
    groups = {instance.pk} if reverse else pk_set
    _reshape(_policies_of(groups))
    _grants_sync(groups)
    if isinstance(instance, User) and instance.removed_at is not None:
        _forget(instance)


def _before_delete(*, instance: Group, **_: Any) -> None:
    instance.exceeded = _policies_of({instance.pk})  # type: ignore[attr-defined]  # until the signal after


def _after_delete(*, instance: Group, **_: Any) -> None:
    _reshape(instance.exceeded)  # type: ignore[attr-defined]  # noted by the signal before


def _policies_of(group_ids: Collection[int] | None) -> list[int]:
    """Policies whose limit members of these groups (None: of any) may exceed."""
    grants = PolicyGroupPermission.objects.filter(permission__codename=EXCEED_LIMIT)
    if group_ids is not None:
        grants = grants.filter(group__in=group_ids)
    return sorted(set(grants.values_list("content_object", flat=True)))


def _reshape(policy_ids: list[int]) -> None:
    if not policy_ids:
        return
    with transaction.atomic():
        live_lock()
        tasks_regroup(policy_ids=policy_ids)


def _grants_sync(group_ids: Collection[int] | None) -> None:
    """Apply restricted policies of these groups (None: of any) to the right people."""
    restricted = Policy.objects.filter(is_restricted=True, removed_at__isnull=True)
    if group_ids is not None:
        restricted = restricted.filter(group__in=group_ids)
    if not restricted.exists():
        return
    with transaction.atomic():
        live_lock()
        permissions_change_notify(sorted(policy_grants_sync(policies=restricted)))


def _forget(account: User) -> None:
    """Remove a deleted service account from all rules."""
    PolicyMember.objects.filter(user=account).delete()
    for resource in RESOURCES.values():
        resource.by_user._default_manager.filter(user=account).delete()
    account.user_permissions.clear()
