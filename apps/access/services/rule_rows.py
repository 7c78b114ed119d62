"""The rows in which rules of people are stored."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth.models import Group

from apps.access.levels import LEVEL_ORDER, RESOURCES, Level
from apps.access.rules.rule import Subject, Target
from apps.accounts.models import User
from apps.accounts.models.grants import GrantSource

Row = User | Group


def levels_set(target: Target, levels: Mapping[Row, Level | None], *, actor: User | None) -> None:
    """Give each of these exactly this level on the target, or none.

    Grants of policies themselves, and permissions to exceed a limit, stay.
    """
    resource = RESOURCES[target.kind]
    ids = {permission.codename: permission.pk for permission in resource.permissions()}
    levels_known = [level for level in resource.verbs if level in LEVEL_ORDER]
    ranked = {ids[name] for level in levels_known for name in resource.codenames(level)}
    wanted = {
        one: {ids[name] for name in resource.codenames(level)} if level is not None else set()
        for one, level in levels.items()
    }
    for model, who in ((User, "user_id"), (Group, "group_id")):
        permissions = {one.pk: found for one, found in wanted.items() if isinstance(one, model)}
        if not permissions:
            continue
        if target.object_id:
            rows = resource.by_user if model is User else resource.by_group
            own = {"content_object_id": target.object_id, "source": GrantSource.PERSON}
            _rows_replace(rows, who, permissions, ranked, own=own, made={"created_by": actor})
        else:
            # Django's own permissions of the model.
            links: Any = User.user_permissions if model is User else Group.permissions
            _rows_replace(links.through, who, permissions, ranked, own={}, made={})


def subjects_of(subjects: Iterable[Subject]) -> tuple[tuple[User, ...], tuple[Group, ...]]:
    """The people and groups that a rule names."""
    named = list(subjects)
    users = User.objects.filter(pk__in=[one.id for one in named if not one.is_group])
    groups = Group.objects.filter(pk__in=[one.id for one in named if one.is_group])
    return tuple(users), tuple(groups)


def _rows_replace(
    model: type[Any],
    who: str,
    wanted: Mapping[int, set[int]],
    ranked: set[int],
    *,
    own: Mapping[str, Any],
    made: Mapping[str, Any],
) -> None:
    """Of the `ranked` permissions each of `who` has exactly the wanted ones; a row that fits stays.

    Args:
        own: columns that all these rows have; with `made`, those of new ones.
    """
    rows = model._default_manager.filter(
        **own, permission__in=ranked, **{f"{who}__in": list(wanted)}
    )
    had = {
        (one, permission): pk
        for pk, one, permission in rows.values_list("pk", who, "permission_id")
    }
    gone = [pk for (one, permission), pk in had.items() if permission not in wanted[one]]
    model._default_manager.filter(pk__in=gone).delete()
    model._default_manager.bulk_create(
        model(**own, **made, permission_id=permission, **{who: one})
        for one, permissions in wanted.items()
        for permission in sorted(permissions)
        if (one, permission) not in had
    )
