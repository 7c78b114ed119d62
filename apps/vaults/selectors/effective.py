"""Opened vaults: with secrets for tasks, without them for readers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Group
from django.db.models import Q, QuerySet

from apps.core.errors import RpmError
from apps.core.keyring import unseal
from apps.vaults.layers import Layer, ValueOrigin
from apps.vaults.models import Vault, VaultVersion
from apps.vaults.text.reader import hide_secrets, read

# A vault at one version: its id and the version.
VaultRef = tuple[UUID, int]


class VaultGone(RpmError):
    """A vault of an attempt was removed before all of its members were launched."""

    code = "vault_gone"
    status = 409


def vaults_applying_to(
    owner_id: int, *, tenant_id: int | None, is_by_owner: bool = True
) -> list[VaultRef]:
    """The vaults that tasks of this owner get now, the lowest first.

    Args:
        tenant_id: of the policy whose queue the task is in. Vaults of groups of a tenant reach
            tasks in its own queues alone, so that no tenant configures tasks of another.
        is_by_owner: False: another user wrote what the task runs, and could make it print the
            owner's private values.
    """
    applying = _applying(owner_id, tenant_id)
    if not is_by_owner:
        applying = applying.filter(owner__isnull=True)
    rows = applying.values_list("pk", "version", "owner_id", "position")
    found = sorted(rows, key=lambda row: (row[2] is None, row[3], row[0]))
    return [(pk, version) for pk, version, _, _ in found]


def layers_of(used: Sequence[VaultRef]) -> list[Layer]:
    """The opened vaults at these versions, in this order.

    Raises:
        VaultGone: one is not there any more.
        CannotUnseal: one was sealed with a key that is gone, or for another vault.
    """
    if not used:
        return []
    wanted = Q()
    for vault_id, version in used:
        wanted |= Q(vault=vault_id, version=version)
    rows = VaultVersion.objects.filter(wanted).select_related("vault").defer("sealed_text")
    found: dict[VaultRef, VaultVersion] = {(row.vault_id, row.version): row for row in rows}
    if len(found) < len(used):
        raise VaultGone("A vault of this attempt does not exist any more.")
    return [_layer(found[one]) for one in used]


def vault_text(vault: Vault) -> str:
    """The current text, with stars in place of secrets.

    Raises:
        CannotUnseal: it was sealed with a key that is gone, or for another vault.
    """
    row = version_of(vault, vault.version)
    if row is None:
        raise VaultGone("The content of this vault does not exist any more.")
    return version_text(row)


def version_of(vault: Vault, number: int) -> VaultVersion | None:
    """The sealed content of this version."""
    row = VaultVersion.objects.filter(vault=vault, version=number).first()
    if row is not None:
        # The owner is part of the context that opens it: no further query.
        row.vault = vault
    return row


def version_text(row: VaultVersion) -> str:
    """The text of this version, with stars in place of secrets.

    Raises:
        CannotUnseal: it was sealed with a key that is gone, or for another vault.
    """
    text = unseal(row.sealed_text, context=row.text_context)
    return hide_secrets(text, read(text, format=row.format, is_stored=True))


def version_data(row: VaultVersion) -> Mapping[str, Any]:
    """The data of a vault in this version, with its secrets.

    Raises:
        CannotUnseal: it was sealed with a key that is gone, or for another place.
    """
    if not row.sealed_data:
        text = unseal(row.sealed_text, context=row.text_context)
        return read(text, format=row.format, is_stored=True).data
    data: dict[str, Any] = json.loads(unseal(row.sealed_data, context=row.data_context))
    return data


def _applying(owner_id: int, tenant_id: int | None) -> QuerySet[Vault]:
    here = Q(belongs__isnull=True)
    if tenant_id is not None:
        here |= Q(belongs__tenant=tenant_id)
    groups = Group.objects.filter(here, user=owner_id)
    mine = Q(owner=owner_id) | Q(group__in=groups.values("pk"))
    return Vault.objects.filter(mine, removed_at__isnull=True, is_active=True)


def _layer(row: VaultVersion) -> Layer:
    vault = row.vault
    origin = ValueOrigin(vault.pk, vault.name, row.version, is_personal=vault.is_personal)
    return Layer(origin, version_data(row), tuple(row.enforced))
