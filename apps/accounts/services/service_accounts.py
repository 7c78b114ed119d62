"""Accounts of programs: no log-in, credentials of their own, groups as people have them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import USERS, Credential, Scope, User
from apps.accounts.services.credentials import credential_create, credentials_revoke_all
from apps.accounts.services.groups import memberships_lock, permissions_change_notify
from apps.accounts.services.tenancy import one_tenant_check
from apps.core.errors import BadInput
from apps.core.model_errors import from_model_error
from apps.core.recorders import event_record

_LONGEST_NAME = 150


@dataclass(frozen=True, slots=True)
class NewServiceAccount:
    """A new account with its first credential, whose secret is shown once and kept nowhere."""

    account: User
    credential: Credential
    secret: str


@transaction.atomic
def service_account_create(
    *,
    actor: User | None,
    name: str,
    groups: Iterable[str] = (),
    can_act_for_owners: bool = False,
    scope: Scope = Scope.ENQUEUE,
    expires_at: datetime | None = None,
    made_with: Credential | None = None,
) -> NewServiceAccount:
    """An account in `Users` and in the named groups, with its first credential.

    Raises:
        BadInput: naming the field.
    """
    account = User(username=name, is_service=True, can_act_for_owners=can_act_for_owners)
    account.set_unusable_password()
    memberships_lock()
    _check(account)
    account.save()
    account.groups.set(_groups(groups))
    one_tenant_check([account.pk])
    _note("service_account.created", account, actor, after=_facts(account))
    credential, secret = credential_create(
        user=account,
        label="Made with the account",
        scope=scope,
        expires_at=expires_at,
        actor=actor,
        made_with=made_with,
    )
    return NewServiceAccount(account, credential, secret)


@transaction.atomic
def service_account_change(
    *,
    actor: User | None,
    account: User,
    name: str | None = None,
    groups: Iterable[str] | None = None,
    can_act_for_owners: bool | None = None,
) -> User:
    """Change the values that are not None; new permissions hold from the next request on.

    Raises:
        BadInput: naming the field.
    """
    if groups is not None:
        memberships_lock()
    account = User.objects.select_for_update(no_key=True).get(pk=account.pk)
    before = _facts(account)
    if name is not None:
        account.username = name
    if can_act_for_owners is not None:
        account.can_act_for_owners = can_act_for_owners
    _check(account)
    account.save(update_fields=["username", "can_act_for_owners"])
    if groups is not None:
        account.groups.set(_groups(groups))
        one_tenant_check([account.pk])
    after = _facts(account)
    if before != after:
        _note("service_account.changed", account, actor, before=before, after=after)
        permissions_change_notify([account.pk])
    return account


@transaction.atomic
def service_account_remove(*, actor: User | None, account: User) -> None:
    """Refuse its credentials from now on and free its name.

    Its tasks stay: running ones go on, waiting ones stay queued.
    """
    memberships_lock()
    account = User.objects.select_for_update(no_key=True).get(pk=account.pk)
    if account.removed_at is not None:
        return
    _note("service_account.removed", account, actor, before=_facts(account))
    credentials_revoke_all(user=account, actor=actor)
    ending = f".removed-{account.pk}"
    account.username = account.username[: _LONGEST_NAME - len(ending)] + ending
    account.is_active = False
    account.removed_at = timezone.now()
    account.save(update_fields=["username", "is_active", "removed_at"])
    account.groups.clear()
    permissions_change_notify([account.pk])


def _check(account: User) -> None:
    try:
        account.full_clean()
    except ValidationError as error:
        wrong = from_model_error(error)
        fields = {("name" if k == "username" else k): v for k, v in wrong.fields.items()}
        raise BadInput(wrong.detail, fields=fields) from error


def _groups(names: Iterable[str]) -> list[Group]:
    """The groups of these names, and the one of everybody."""
    wanted = {USERS, *names}
    found = list(Group.objects.filter(name__in=wanted))
    missing = wanted - {group.name for group in found}
    if missing:
        problem = f"there is no group {min(missing)!r}"
        raise BadInput(f"groups: {problem}.", fields={"groups": problem})
    return found


def _facts(account: User) -> dict[str, Any]:
    return {
        "name": account.username,
        "groups": sorted(account.groups.values_list("name", flat=True)),
        "can_act_for_owners": account.can_act_for_owners,
    }


def _note(
    kind: str,
    account: User,
    actor: User | None,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    event_record(
        kind,
        actor=actor,
        object_type="user",
        object_id=account.pk,
        data={"name": account.username, "before": before, "after": after},
    )
