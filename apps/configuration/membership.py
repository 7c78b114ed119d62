"""Who joins or leaves a group may exceed other limits: what they have waiting is sorted anew.

Wherever a membership changes, page, REST, service or shell, so it hangs on Django's signals.
"""

from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, pre_delete

from apps.accounts.models import User
from apps.configuration.services.rows import live_lock
from apps.policies.models import PolicyGroupPermission
from apps.policies.selectors import EXCEED_LIMIT
from apps.tasks.services.reshaping import tasks_reshape


def connect() -> None:
    """Listen to changes of memberships, once however often it is called."""
    memberships = User.groups.through
    m2m_changed.connect(_changed, sender=memberships, dispatch_uid="configuration.membership")
    pre_delete.connect(_before_delete, sender=Group, dispatch_uid="configuration.group.before")
    post_delete.connect(_after_delete, sender=Group, dispatch_uid="configuration.group.after")


def _changed(
    *, instance: User | Group, action: str, reverse: bool, pk_set: set[int] | None, **_: Any
) -> None:
    if action not in {"post_add", "post_remove", "post_clear"}:
        return
    if reverse:
        _reshape(_policies_of({instance.pk}))
    else:
        # Without a set, all groups were left: which, nobody says any more.
        _reshape(_policies_of(pk_set))


def _before_delete(*, instance: Group, **_: Any) -> None:
    instance.exceeded = _policies_of({instance.pk})  # type: ignore[attr-defined]  # until the signal after


def _after_delete(*, instance: Group, **_: Any) -> None:
    _reshape(instance.exceeded)  # type: ignore[attr-defined]  # noted by the signal before


def _policies_of(group_ids: set[int] | None) -> list[int]:
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
