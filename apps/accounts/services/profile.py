"""Changes that people make to their own account."""

from collections.abc import Mapping
from itertools import chain
from typing import Any
from zoneinfo import available_timezones

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.selectors import former_names
from apps.accounts.services.groups import permissions_change_notify
from apps.accounts.services.people import password_check
from apps.accounts.services.people_changes import new_nonce, person_record, person_save
from apps.core.errors import BadInput
from apps.core.names import look_of, name_problem
from apps.core.recorders import event_record

# Users cannot try names without end, and every one stays theirs.
MOST_FORMER_NAMES = 10
OWN = ("username", "first_name", "last_name", "email", "time_zone")


@transaction.atomic
def profile_change(*, user: User, changes: Mapping[str, str], password: str = "") -> User:
    """Change the user's own names, time zone, and, with the password, the e-mail address.

    Raises:
        BadInput: naming the field.
    """
    row = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    unknown = set(changes) - set(OWN)
    if unknown:
        raise BadInput(f"{min(unknown)} cannot be changed here.", fields={min(unknown): "unknown"})
    if row.is_service and changes.get("username", row.username) != row.username:
        problem = "of a service account is changed by administrators"
        raise BadInput(f"username {problem}.", fields={"username": problem})
    time_zone_check(changes.get("time_zone", ""))
    before = {name: getattr(row, name) for name in changes if getattr(row, name) != changes[name]}
    if "email" in before:
        _check_own_password(row, password, "current_password")
    if "username" in before:
        _check_new_name(row, changes["username"])
    if before:
        # A provider's user with that address is not recognised as this person because of it.
        marks: dict[str, Any] = {"is_email_unverified": True} if "email" in before else {}
        if "username" in before:
            marks["former_names"] = [*row.former_names, before["username"]]
        person_save(row, {**{name: changes[name] for name in before}, **marks})
        person_record("person.changed", actor=row, user=row, before=before)
    return row


@transaction.atomic
def password_change(*, user: User, current_password: str, new_password: str) -> User:
    """Set another password; every other session of this person ends.

    Raises:
        BadInput: the current password is wrong, or the new one will not do.
    """
    row = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    _check_own_password(row, current_password, "current_password")
    password_check(new_password, row, field="new_password")
    row.set_password(new_password)
    row.session_nonce = new_nonce()
    row.save(update_fields=["password", "session_nonce"])
    event_record(
        "person.password",
        actor=row,
        object_type="user",
        object_id=row.pk,
        data={"name": row.username},
    )
    permissions_change_notify([row.pk])
    return row


def time_zone_check(zone: str) -> None:
    """Refuse an unknown time zone; an empty one means that of the browser.

    Raises:
        BadInput: naming the field.
    """
    if zone and zone not in available_timezones():
        words = "There is no such time zone: use a name such as Europe/Berlin, or leave it empty."
        raise BadInput(f"time_zone: {words}", fields={"time_zone": words})


def _check_new_name(user: User, name: str) -> None:
    """Refuse a name that another account has, had, or looks like.

    Rules and files name users: who takes the former name of another must not get what those give.
    """
    others = User.objects.exclude(pk=user.pk)
    used = chain(others.values_list("username", flat=True), former_names(others))
    words = name_problem(name)
    if look_of(name) in map(look_of, used):
        words = "Another account has this name, had it, or has one that looks like it."
    elif len(user.former_names) >= MOST_FORMER_NAMES:
        words = f"You changed it {MOST_FORMER_NAMES} times: ask an administrator."
    if words:
        raise BadInput(f"username: {words}", fields={"username": words})


def _check_own_password(user: User, password: str, field: str) -> None:
    if not user.has_usable_password():
        words = "This account has no password here: ask an administrator."
    elif not password:
        words = "Enter your password to change it or your e-mail address."
    elif not user.check_password(password):
        words = "This is not your password."
    else:
        return
    raise BadInput(f"{field}: {words}", fields={field: words})
