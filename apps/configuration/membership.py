"""What follows when somebody joins or leaves a group.

They may exceed other limits, so that what they have waiting is sorted anew; and narrowed policies
apply to those of the chosen who are in their group. Wherever a membership changes, page, REST,
identity provider, service or shell, so it hangs on Django's signals.
"""

from collections.abc import Collection
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, pre_delete

from apps.accounts.models import User
from apps.accounts.services.groups import rights_changed
from apps.configuration.rules.levels import RESOURCES
from apps.configuration.services.grants import policy_grants_sync
from apps.configuration.services.rows import live_lock, live_wait
from apps.core.locking import outer_lock_set
from apps.policies.models import Policy, PolicyChosen, PolicyGroupPermission
from apps.policies.selectors import EXCEED_LIMIT
from apps.tasks.services.reshaping import tasks_reshape


def connect() -> None:
    """Listen to changes of memberships, once however often it is called."""
    outer_lock_set(live_wait)
    memberships = User.groups.through
    m2m_changed.connect(_changed, sender=memberships, dispatch_uid="configuration.membership")
    pre_delete.connect(_before_delete, sender=Group, dispatch_uid="configuration.group.before")
    post_delete.connect(_after_delete, sender=Group, dispatch_uid="configuration.group.after")


def _changed(
    *, instance: User | Group, action: str, reverse: bool, pk_set: set[int] | None, **_: Any
) -> None:
    if action not in {"post_add", "post_remove", "post_clear"}:
        return
    # Without a set, all groups were left: which, nobody says any more.
    groups = {instance.pk} if reverse else pk_set
    _reshape(_policies_of(groups))
    _narrow(groups)
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
        tasks_reshape(policy_ids=policy_ids)


def _narrow(group_ids: Collection[int] | None) -> None:
    """Narrowed policies of these groups (None: of any) apply to the right people."""
    narrowed = Policy.objects.filter(is_narrowed=True, removed_at__isnull=True)
    if group_ids is not None:
        narrowed = narrowed.filter(group__in=group_ids)
    if not narrowed.exists():
        return
    with transaction.atomic():
        live_lock()
        rights_changed(sorted(policy_grants_sync(policies=narrowed)))


def _forget(account: User) -> None:
    """A service account that was deleted is named by no rule any more."""
    PolicyChosen.objects.filter(user=account).delete()
    for resource in RESOURCES.values():
        resource.by_user._default_manager.filter(user=account).delete()
    account.user_permissions.clear()
