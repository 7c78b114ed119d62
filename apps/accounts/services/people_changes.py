"""Changes, deactivates and activates people. Nobody is ever deleted: history names them."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.accounts.models import Invitation, User
from apps.accounts.selectors import administrators_left, is_admin, people_managed_by
from apps.accounts.services.break_glass import break_glass_check
from apps.accounts.services.credentials import credentials_revoke_all
from apps.accounts.services.groups import (
    admins_lock,
    memberships_lock,
    permissions_change_notify,
    user_groups_set,
)
from apps.core.errors import BadInput, Conflict, NotAllowed
from apps.core.model_errors import from_model_error
from apps.core.recorders import event_record

PLAIN = ("username", "first_name", "last_name", "email")


@transaction.atomic
def person_change(
    *,
    actor: User | None,
    user: User,
    changes: Mapping[str, str],
    groups: Iterable[Group] | None = None,
) -> User:
    """Change names and e-mail address; with `groups` exactly these are the person's.

    An administrator of the installation confirms an address by saving it, even unchanged. One that
    an administrator of a tenant enters after the person came stays unconfirmed: the owner of that
    address at a provider would sign in to this account.

    Raises:
        BadInput: naming the field.
        Conflict: nobody would administer any more.
        NotAllowed: the actor does not look after this person.
    """
    if groups is not None:
        memberships_lock()
    row = person_lock(actor, user)
    unknown = set(changes) - set(PLAIN)
    if unknown:
        raise BadInput(f"{min(unknown)} cannot be changed here.", fields={min(unknown): "unknown"})
    before: dict[str, Any] = {
        name: getattr(row, name) for name in changes if getattr(row, name) != changes[name]
    }
    is_unconfirmed = _is_unconfirmed_by(actor, row, changes, before)
    marks: dict[str, Any] = {}
    if is_unconfirmed != row.is_email_unverified:
        before["is_email_unverified"] = row.is_email_unverified
        marks = {"is_email_unverified": is_unconfirmed}
    if before:
        values = {name: changes[name] for name in before if name in changes}
        person_save(row, {**values, **marks})
        person_record("person.changed", actor=actor, user=row, before=before)
    if groups is not None:
        user_groups_set(actor=actor, user=row, groups=groups)
    return row


def person_lock(actor: User | None, user: User) -> User:
    """The current row, locked.

    Raises:
        NotAllowed: the actor does not look after this person, or not any more.
    """
    row = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if actor is not None and not people_managed_by(actor).filter(pk=row.pk).exists():
        raise NotAllowed(f"{row.username} is not among those whom you look after.")
    return row


@transaction.atomic
def person_deactivate(*, actor: User | None, user: User) -> User:
    """Deactivate an account: its sessions, sockets and credentials end.

    The tasks stay: running ones go on, waiting ones are shown to administrators.

    Raises:
        Conflict: nobody could administer, or sign in with a password, any more; or it is a service
            account.
        NotAllowed: the actor does not look after this person.
    """
    admins_lock()
    if user.is_service:
        raise Conflict("This is a service account, which has no log-in: remove it instead.")
    row = person_lock(actor, user)
    if not row.is_active:
        return row
    if not administrators_left(without=row):
        raise Conflict(f"{row.username} is the last administrator: add another one first.")
    break_glass_check(row)
    row.is_active = False
    row.keeps_waiting_tasks = False
    row.session_nonce = new_nonce()
    row.save(update_fields=["is_active", "keeps_waiting_tasks", "session_nonce"])
    Invitation.objects.filter(user=row).delete()
    revoked = credentials_revoke_all(user=row, actor=actor)
    _record("person.deactivated", actor, row, before=True, credentials_revoked=revoked)
    permissions_change_notify([row.pk])
    return row


@transaction.atomic
def person_activate(*, actor: User | None, user: User) -> User:
    """Let the person sign in again; credentials stay revoked.

    Raises:
        NotAllowed: the actor does not look after this person.
    """
    row = person_lock(actor, user)
    if row.is_active:
        return row
    row.is_active = True
    row.keeps_waiting_tasks = False
    row.save(update_fields=["is_active", "keeps_waiting_tasks"])
    _record("person.activated", actor, row, before=False)
    permissions_change_notify([row.pk])
    return row


@transaction.atomic
def person_leave_waiting(*, actor: User | None, user: User) -> None:
    """Let the waiting tasks of a deactivated person stay queued, and end the reminder of them.

    Raises:
        Conflict: the person is active.
        NotAllowed: the actor does not look after this person.
    """
    row = person_lock(actor, user)
    if row.is_active:
        raise Conflict(f"{row.username} is active: the waiting tasks are theirs to decide on.")
    row.keeps_waiting_tasks = True
    row.save(update_fields=["keeps_waiting_tasks"])
    event_record(
        "person.waiting_left",
        actor=actor,
        object_type="user",
        object_id=row.pk,
        data={"name": row.username},
    )


def _is_unconfirmed_by(
    actor: User | None, row: User, changes: Mapping[str, str], before: Mapping[str, Any]
) -> bool:
    """Whether the address is unconfirmed after these changes."""
    if "email" in changes and (actor is None or is_admin(actor)):
        return False
    # The owner of an invitation's address may sign in by it: the link is spent then.
    return row.is_email_unverified or ("email" in before and not row.is_pending)


def person_save(user: User, changes: Mapping[str, Any]) -> None:
    """Store the new values of a person who is locked.

    Raises:
        BadInput: naming the field.
    """
    for name, value in changes.items():
        setattr(user, name, value)
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as error:
        raise from_model_error(error) from error
    if changes.get("email"):
        email_check(changes["email"], user=user)
    user.save(update_fields=list(changes))


def person_record(kind: str, *, actor: User | None, user: User, before: Mapping[str, Any]) -> None:
    """Record changed columns with their values before and after."""
    event_record(
        kind,
        actor=actor,
        object_type="user",
        object_id=user.pk,
        data={
            "name": user.username,
            "before": dict(before),
            "after": {name: getattr(user, name) for name in before},
        },
    )


def email_check(email: str, *, user: User | None = None) -> None:
    """Refuse an address that another user has.

    Raises:
        BadInput: naming the field.
    """
    others = User.objects.filter(email__iexact=email, is_service=False)
    if user is not None and user.pk is not None:
        others = others.exclude(pk=user.pk)
    if others.exists():
        words = "Another account has this address: use another."
        raise BadInput(f"email: {words}", fields={"email": words})


def new_nonce() -> str:
    """Another value for `session_nonce`, which ends every session of its person."""
    return secrets.token_hex(16)


def _record(kind: str, actor: User | None, user: User, *, before: bool, **more: Any) -> None:
    event_record(
        kind,
        actor=actor,
        object_type="user",
        object_id=user.pk,
        data={
            "name": user.username,
            "before": {"is_active": before},
            "after": {"is_active": not before},
            **more,
        },
    )
