"""What users do with vaults: each function checks their permissions, then changes the vault."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.access.isolation import users_isolated_from
from apps.access.vaults import VaultPermissions, vault_permissions, visible_vault
from apps.accounts.models import User
from apps.core.errors import NotAllowed, Stale
from apps.vaults.models import Vault
from apps.vaults.services.vaults import (
    checked_vault_change,
    checked_vault_move,
    checked_vault_remove,
    checked_vault_restore,
    checked_vault_switch,
    restoring_changes,
)


@transaction.atomic
def vault_change(
    *, actor: User, vault: Vault, changes: Mapping[str, Any], version: int | None = None
) -> Vault:
    """Change some of `CHANGEABLE`; stars in the text stand for the secrets that are stored.

    Args:
        version: the one that was read; None does not check.

    Raises:
        BadInput: naming the field.
        NotAllowed: the actor may see the vault, but not change it.
        Stale: another user changed it meanwhile.
    """
    row, permissions = _changeable(actor, vault)
    _check_changes(actor, row, permissions, changes, version)
    checked_vault_change(actor=actor, vault=row, changes=changes)
    return row


@transaction.atomic
def vault_restore(*, actor: User, vault: Vault, to: int, version: int | None = None) -> Vault:
    """Restore the content of version `to` as a new version.

    Text, format, enforced entries and secrets are restored; name, place and switch stay.

    Args:
        version: the one that was read; None does not check.

    Raises:
        BadInput: that version is not kept any more, or is the current one.
        NotAllowed: the actor may see the vault, but not change it.
        Stale: another user changed it meanwhile.
    """
    row, permissions = _changeable(actor, vault)
    changes = restoring_changes(row, to)
    _check_changes(actor, row, permissions, changes, version)
    checked_vault_restore(actor=actor, vault=row, to=to, changes=changes)
    return row


@transaction.atomic
def vault_switch(*, actor: User, vault: Vault, is_active: bool) -> Vault:
    """Switch a vault on or off for tasks that are launched from now on.

    Raises:
        NotAllowed: administrators switch other users' vaults off, never on.
    """
    row, permissions = _locked(actor, vault)
    if not (permissions.change or (permissions.switch_off and not is_active)):
        raise NotAllowed("You may see this vault, but not switch it.")
    checked_vault_switch(actor=actor, vault=row, is_active=is_active)
    return row


@transaction.atomic
def vault_move(*, actor: User, vault: Vault, position: int) -> Vault:
    """Move a vault to a position (1 is the lowest) of its kind.

    Raises:
        NotAllowed: the vault has another owner.
    """
    row, permissions = _locked(actor, vault)
    if not permissions.own:
        raise NotAllowed("You may see this vault, but not move it.")
    return checked_vault_move(actor=actor, vault=row, position=position)


@transaction.atomic
def vault_remove(*, actor: User, vault: Vault) -> None:
    """Remove a vault; tasks that started with it keep their values.

    Raises:
        NotAllowed: the vault has another owner.
    """
    row, permissions = _locked(actor, vault)
    if not permissions.own:
        raise NotAllowed("You may see this vault, but not remove it.")
    checked_vault_remove(actor=actor, vault=row)


def _locked(actor: User, vault: Vault) -> tuple[Vault, VaultPermissions]:
    """The vault, locked against other writers, and the actor's current permissions on it.

    Grants are read after the lock: a rule may have removed the permission while the actor waited.
    NotFound where the vault is gone or not visible any more.
    """
    Vault.objects.select_for_update().filter(pk=vault.pk).first()
    row = visible_vault(actor, vault.pk)
    return row, vault_permissions(actor, row)


def _changeable(actor: User, vault: Vault) -> tuple[Vault, VaultPermissions]:
    row, permissions = _locked(actor, vault)
    if not permissions.change:
        raise NotAllowed("You may see this vault, but not change it.")
    return row, permissions


def _check_changes(
    actor: User,
    vault: Vault,
    permissions: VaultPermissions,
    changes: Mapping[str, Any],
    version: int | None,
) -> None:
    if version is not None and version != vault.version:
        raise Stale(
            f"{_last_writer(actor, vault)} changed this vault since you read it.",
            fields={"If-Match": f"the version is {vault.version}"},
        )
    is_enforcing = "enforced" in changes and list(changes["enforced"]) != vault.enforced
    if is_enforcing and not permissions.enforce:
        raise NotAllowed("Only administrators enforce entries, and only in vaults of groups.")


def _last_writer(reader: User, vault: Vault) -> str:
    """The name of the last writer, as far as the reader may see that user."""
    writer = vault.updated_by
    if writer is None or users_isolated_from(reader).filter(pk=writer.pk).exists():
        return "Another user"
    return writer.username
