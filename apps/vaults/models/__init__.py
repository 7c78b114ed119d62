"""Vaults, their versions, and the permissions on them."""

from apps.vaults.models.permissions import VaultGroupPermission, VaultUserPermission
from apps.vaults.models.vaults import NAME_LENGTH, Vault, VaultFormat, VaultVersion

__all__ = [
    "NAME_LENGTH",
    "Vault",
    "VaultFormat",
    "VaultGroupPermission",
    "VaultUserPermission",
    "VaultVersion",
]
