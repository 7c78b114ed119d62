"""Permissions on single vaults: rows of guardian, which are deleted with their vault."""

from django.db import models
from guardian.models import GroupObjectPermissionBase, UserObjectPermissionBase

from apps.accounts.models.grants import GrantOrigin
from apps.vaults.models.vaults import Vault


class VaultUserPermission(UserObjectPermissionBase, GrantOrigin):
    """Permission of a user on one vault: `view_vault` reads the text, `change_vault` changes it."""

    content_object = models.ForeignKey(Vault, on_delete=models.CASCADE)


class VaultGroupPermission(GroupObjectPermissionBase, GrantOrigin):
    """The same for a group."""

    content_object = models.ForeignKey(Vault, on_delete=models.CASCADE)
