"""Groups and who is in them: all rights follow from these."""

from collections.abc import Iterable, Sequence

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import ProtectedError

from apps.accounts.models import ADMINS, USERS, GroupInfo, User
from apps.core.api import from_model_error
from apps.core.doorbell import after_commit
from apps.core.errors import Conflict


@transaction.atomic
def group_save(*, group: Group, description: str, members: Sequence[User]) -> Group:
    """Make or change a group with its members.

    Raises:
        BadInput: naming the field.
        Conflict: a built-in group gets another name, or nobody would administer any more.
    """
    before = set[int]()
    if group.pk is not None:
        before = set(User.objects.filter(groups=group).values_list("pk", flat=True))
        _check_built_in(group)
    if group.name == ADMINS and not any(user.is_active for user in members):
        raise Conflict("Somebody must stay in Admins.")
    try:
        group.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    group.save()
    GroupInfo.objects.update_or_create(group=group, defaults={"description": description})
    group.user_set.set(members)
    rights_changed(before ^ {user.pk for user in members})
    return group


@transaction.atomic
def group_remove(*, group: Group) -> None:
    """Take a group away with the rights that were given to it.

    Raises:
        Conflict: it is built in, or a policy names it.
    """
    if GroupInfo.objects.filter(group=group, is_built_in=True).exists():
        raise Conflict(f"Group {group.name} is built in and cannot be removed.")
    members = list(User.objects.filter(groups=group).values_list("pk", flat=True))
    try:
        group.delete()
    except ProtectedError as error:
        raise Conflict(
            f"Group {group.name} is the group of policies; removed ones count too, because their "
            "history names it."
        ) from error
    rights_changed(members)


@transaction.atomic
def user_groups_complete(*, user: User) -> None:
    """After somebody set the groups of a user: everybody is in `Users`, and somebody in `Admins`.

    Raises:
        Conflict: nobody would administer any more.
    """
    user.groups.add(Group.objects.get(name=USERS))
    if not User.objects.filter(groups__name=ADMINS, is_active=True).exists():
        raise Conflict("Somebody must stay in Admins.")
    rights_changed([user.pk])


def rights_changed(user_ids: Iterable[int]) -> None:
    """Sockets of these people close, and their pages begin again with the rights of now."""
    after_commit(topics=[f"user.{pk}" for pk in user_ids])


def _check_built_in(group: Group) -> None:
    kept = Group.objects.filter(pk=group.pk, info__is_built_in=True).first()
    if kept is not None and kept.name != group.name:
        raise Conflict(f"Group {kept.name} is built in and keeps its name.")
