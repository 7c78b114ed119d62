"""Groups and their members: all permissions follow from these."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import ProtectedError

from apps.accounts.models import ADMINS, BUILT_IN_GROUPS, USERS, GroupInfo, User
from apps.accounts.selectors import (
    LogInUse,
    administrators_left,
    is_admin,
    log_in_use,
    provider_giving,
)
from apps.accounts.services.break_glass import break_glass_check
from apps.accounts.services.tenancy import (
    group_joins_tenant,
    groups_in_tenant,
    one_tenant_check,
    stays_in_tenant_check,
)
from apps.core.errors import BadInput, Conflict
from apps.core.lock_order import live_configuration_lock
from apps.core.model_errors import from_model_error
from apps.core.names import look_of, name_problem
from apps.core.notifications import after_commit
from apps.core.recorders import event_record

MOST_NAMED = 50


@transaction.atomic
def group_save(
    *,
    actor: User | None,
    group: Group,
    description: str,
    members: Sequence[User] | None = None,
) -> Group:
    """Create or change a group; with `members` exactly these are in it afterwards.

    Raises:
        BadInput: naming the field.
        Conflict: a built-in group gets another name, or nobody would administer any more.
    """
    is_new = group.pk is None
    if members is not None:
        memberships_lock()
    before = {} if is_new else _group_facts(Group.objects.select_related("info").get(pk=group.pk))
    if not is_new:
        _check_built_in(group)
    if before.get("name") != group.name:
        _check_name(group)
    try:
        group.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    group.save()
    if is_new:
        group_joins_tenant(actor, group)
    info, _ = GroupInfo.objects.update_or_create(group=group, defaults={"description": description})
    group.info = info
    after = _group_facts(group)
    if before != after:
        _record("group.made" if is_new else "group.changed", actor, group, before, after)
    if members is not None:
        known = {user.pk: user for user in User.objects.filter(groups=group)}
        wanted = {user.pk: user for user in members}
        _members_set(
            actor,
            group,
            joined=[user for pk, user in wanted.items() if pk not in known],
            left=[user for pk, user in known.items() if pk not in wanted],
        )
    return group


@transaction.atomic
def group_members_add(*, actor: User | None, group: Group, users: Iterable[User]) -> int:
    """Add these people to the group.

    Returns:
        How many were not in it before.
    """
    memberships_lock()
    inside = set(User.objects.filter(groups=group).values_list("pk", flat=True))
    joined = [user for user in users if user.pk not in inside]
    _members_set(actor, group, joined=joined, left=[])
    return len(joined)


@transaction.atomic
def group_members_remove(*, actor: User | None, group: Group, users: Iterable[User]) -> int:
    """Remove these people from the group: from their next request on they lack its permissions.

    Their tasks stay as they are; those that wait under a raised limit are sorted by the plain one.

    Returns:
        How many were in it before.

    Raises:
        BadInput: a user would be in no group of their tenant; administrators may do that.
        Conflict: the group is `Users`, or nobody would be left to administer, or to sign in with a
            password.
    """
    if group.name == USERS:
        raise Conflict("Everybody is in Users: deactivate a person instead.")
    memberships_lock()
    inside = set(User.objects.filter(groups=group).values_list("pk", flat=True))
    left = [user for user in users if user.pk in inside]
    _members_set(actor, group, joined=[], left=left)
    return len(left)


@transaction.atomic
def group_leave(*, user: User, group: Group) -> None:
    """Take a user out of a group at their own request.

    Raises:
        BadInput: the user is not in it, or would be in no group of their tenant.
        Conflict: an identity provider gives the membership, or what `group_members_remove` refuses.
    """
    memberships_lock()
    if not user.groups.filter(pk=group.pk).exists():
        problem = f"you are not in {group.name}"
        raise BadInput(f"group: {problem}.", fields={"group": problem})
    provider = provider_giving(user, group)
    if provider is not None:
        raise Conflict(
            f"{provider.name} gives you group {group.name}, and would again: leave it there."
        )
    group_members_remove(actor=user, group=group, users=[user])


@transaction.atomic
def group_remove(*, actor: User | None, group: Group) -> None:
    """Remove a group with the permissions that were given to it.

    Raises:
        BadInput: a user would be in no group of their tenant; administrators may do that.
        Conflict: it is built in, or a policy names it; for administrators of a tenant also where
            signing in goes by it.
    """
    if GroupInfo.objects.filter(group=group, is_built_in=True).exists():
        raise Conflict(f"Group {group.name} is built in and cannot be removed.")
    memberships_lock()
    use = log_in_use(group)
    if use and actor is not None and not is_admin(actor):
        raise Conflict(
            f"Signing in uses group {group.name}: an administrator of the installation removes it."
        )
    people = list(User.objects.filter(groups=group))
    stays_in_tenant_check(actor, group, people)
    members = [user.pk for user in people]
    before, group_id = _group_facts(group), group.pk
    try:
        group.delete()
    except ProtectedError as error:
        kinds = sorted({str(one._meta.verbose_name_plural) for one in error.protected_objects})
        raise Conflict(
            f"Group {group.name} is the group of {' and '.join(kinds)}; removed ones count too, "
            "because their history names it."
        ) from error
    event_record(
        "group.removed",
        actor=actor,
        object_type="group",
        object_id=group_id,
        data={
            "name": group.name,
            "before": {**before, "members": len(members), **_log_in_facts(use)},
            "after": {},
        },
    )
    permissions_change_notify(members)


@transaction.atomic
def user_groups_set(*, actor: User | None, user: User, groups: Iterable[Group]) -> None:
    """Put a person into exactly these groups; everybody is in `Users`.

    Raises:
        Conflict: nobody would administer any more.
    """
    memberships_lock()
    before = set(user.groups.all())
    after = groups_in_tenant(actor, before=before, wanted=groups)
    after.add(Group.objects.get(name=USERS))
    user.groups.set(after)
    _check_admins([user] if any(group.name == ADMINS for group in before - after) else [])
    if before == after:
        return
    one_tenant_check([user.pk])
    event_record(
        "person.groups",
        actor=actor,
        object_type="user",
        object_id=user.pk,
        data={
            "name": user.username,
            "before": {"groups": sorted(group.name for group in before)},
            "after": {"groups": sorted(group.name for group in after)},
        },
    )
    permissions_change_notify([user.pk])


def permissions_change_notify(user_ids: Iterable[int]) -> None:
    """Sockets of these people close, and their pages begin again with the permissions of now."""
    after_commit(topics=[f"user.{pk}" for pk in user_ids])


def _members_set(
    actor: User | None, group: Group, *, joined: Sequence[User], left: Sequence[User]
) -> None:
    group.user_set.add(*joined)
    group.user_set.remove(*left)
    if group.name == ADMINS:
        _check_admins(left)
    one_tenant_check((user.pk for user in (*joined, *left)), field="users")
    stays_in_tenant_check(actor, group, left)
    for word, people in (("joined", joined), ("left", left)):
        if people:
            names = sorted(user.username for user in people)
            more = {"more": len(names) - MOST_NAMED} if len(names) > MOST_NAMED else {}
            event_record(
                f"group.{word}",
                actor=actor,
                object_type="group",
                object_id=group.pk,
                data={"name": group.name, "people": names[:MOST_NAMED], **more},
            )
    permissions_change_notify(user.pk for user in (*joined, *left))


def memberships_lock() -> None:
    """Taken before a change of memberships, and before its people are locked.

    Such changes, and those of tenants, run one after another: each sees the result of the one
    before.
    """
    live_configuration_lock()
    admins_lock()


def admins_lock() -> None:
    """Serialize changes of administrators: two changes at once cannot remove the last two."""
    list(Group.objects.select_for_update(no_key=True).filter(name=ADMINS))


def _check_admins(left: Iterable[User]) -> None:
    """After these left `Admins`."""
    if not administrators_left():
        raise Conflict("Admins needs at least one member who can sign in.")
    for user in left:
        break_glass_check(user)


def _group_facts(group: Group) -> dict[str, str]:
    info = getattr(group, "info", None)
    return {"name": group.name, "description": info.description if info is not None else ""}


def _log_in_facts(use: LogInUse) -> dict[str, Any]:
    """The uses by log-ins that end with a group; empty if there are none."""
    facts: dict[str, Any] = {}
    if use.asks_second_factor:
        facts["asks_second_factor"] = True
    if use.providers:
        facts["providers"] = list(use.providers)
    return facts


def _record(
    kind: str, actor: User | None, group: Group, before: dict[str, str], after: dict[str, str]
) -> None:
    event_record(
        kind,
        actor=actor,
        object_type="group",
        object_id=group.pk,
        data={"name": group.name, "before": before, "after": after},
    )


def _check_built_in(group: Group) -> None:
    kept = Group.objects.filter(pk=group.pk, info__is_built_in=True).first()
    if kept is not None and kept.name != group.name:
        raise Conflict(f"Group {kept.name} is built in and keeps its name.")


def _check_name(group: Group) -> None:
    """Refuse a name that can be taken for that of a built-in group."""
    problem = name_problem(group.name)
    alike = {look_of(name): name for name in BUILT_IN_GROUPS}.get(look_of(group.name))
    if alike is not None and group.name != alike:
        problem = f"looks like the built-in group {alike}: choose another name"
    if problem:
        raise BadInput(f"name {problem}.", fields={"name": problem})
