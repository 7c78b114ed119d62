"""The vaults that a user may see, and how much of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from apps.access.isolation import without_other_tenants
from apps.access.permissions import rows_with_permission
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.errors import NotFound
from apps.events.models import Event
from apps.vaults.models import Vault, VaultVersion

# To see the vault, to read its text, to change it, and to remove, move and switch it on.
VIEW, READ, CHANGE, OWN = "view", "read", "change", "own"
FILTERS = ("kind", "group", "owner", "is_active", "q")


@dataclass(frozen=True, slots=True)
class VaultPermissions:
    """A user's permissions on one vault that the user sees.

    `read` is its text, without secrets; `own` removes it and switches it on; administrators may
    switch off every vault, and `enforce` entries of those of groups.
    """

    read: bool
    change: bool
    own: bool
    switch_off: bool
    enforce: bool


def vaults_visible_to(user: User) -> QuerySet[Vault]:
    """The user's own vaults, those of the user's groups, granted ones; all for administrators.

    Administrators of a tenant see those of all its groups. No grant shows another tenant's vault.
    """
    rows = rows_with_permission(Vault, user, VIEW)
    return rows.select_related("owner", "group", "updated_by")


def vaults_with_permissions(user: User) -> QuerySet[Vault]:
    """The visible vaults, each with the user's permissions, for `vault_permissions`."""
    held = {"is_readable": READ, "is_changeable": CHANGE, "is_owned": OWN}
    rows = rows_with_permission(Vault, user, VIEW, **held)
    return rows.select_related("owner", "group", "updated_by")


def vaults_matching_filters(user: User, wanted: Mapping[str, str]) -> QuerySet[Vault]:
    """The visible vaults that match.

    Args:
        wanted: `kind` ("personal" or "group"), `group` and `owner` (names), `is_active` ("true" or
            "false"), `q` (part of the name); what is missing or empty does not filter.
    """
    vaults = vaults_with_permissions(user)
    given = {name: value for name, value in wanted.items() if value}
    if "kind" in given:
        vaults = vaults.filter(owner__isnull=given["kind"] == "group")
    if "group" in given:
        vaults = vaults.filter(group__name=given["group"])
    if "owner" in given:
        vaults = vaults.filter(owner__username=given["owner"])
    if "is_active" in given:
        vaults = vaults.filter(is_active=given["is_active"] == "true")
    if "q" in given:
        vaults = vaults.filter(name__icontains=given["q"])
    return vaults


def visible_vault(user: User, key: UUID | str) -> Vault:
    """The vault with this id, with the grants of the user.

    Raises:
        NotFound: there is none, or the user may not know of it.
    """
    vault = vaults_with_permissions(user).filter(pk=key).first()
    if vault is None:
        raise NotFound("There is no such vault, or you may not see it.")
    return vault


def vault_permissions(user: User, vault: Vault) -> VaultPermissions:
    """The permissions on a vault of `vaults_with_permissions`; without a query per vault."""
    row: Any = vault
    return VaultPermissions(
        read=row.is_readable,
        change=row.is_changeable,
        own=row.is_owned,
        switch_off=row.is_owned or is_admin(user),
        enforce=row.is_owned and not vault.is_personal,
    )


def group_positions(user: User) -> dict[UUID, int]:
    """The places from 1 of the vaults of groups, among those that this user sees.

    Their stored positions count the vaults of all tenants, and would show how many others have.
    """
    seen = vaults_visible_to(user).filter(group__isnull=False).order_by("position", "pk")
    return {pk: place for place, pk in enumerate(seen.values_list("pk", flat=True), start=1)}


def vault_history(vault: Vault) -> QuerySet[Event]:
    """The events of a vault, the latest first."""
    events = Event.objects.filter(object_type="vault", object_id=str(vault.pk))
    return events.select_related("actor").order_by("-id")


def vault_versions(user: User, vault: Vault) -> QuerySet[VaultVersion]:
    """The kept versions, the latest first, for users who may read the text."""
    rows = (
        VaultVersion.objects.filter(vault=vault)
        .select_related("by")
        .defer("sealed_text", "sealed_data")
    )
    return rows if vault_permissions(user, vault).read else rows.none()


def visible_vault_version(user: User, vault: Vault, number: int) -> VaultVersion:
    """One version of a vault of `vaults_with_permissions`.

    Raises:
        NotFound: it is not kept, or the user may not read the text.
    """
    kept = VaultVersion.objects.filter(vault=vault, version=number)
    row = kept.select_related("by", "vault").first()
    if row is None or not vault_permissions(user, vault).read:
        raise NotFound("There is no such version, or you may not read it.")
    return without_other_tenants(user, [row], "by")[0]
