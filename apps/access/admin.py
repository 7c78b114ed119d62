"""The rows of access rules, read-only; rules are created and changed on their own page."""

from typing import Any

from django.contrib import admin

from apps.core.admin_base import ReadOnlyAdmin
from apps.policies.models import (
    PolicyGroupPermission,
    PolicyUserPermission,
    PoolGroupPermission,
    PoolUserPermission,
    QueueGroupPermission,
    QueueUserPermission,
)
from apps.vaults.models import VaultGroupPermission, VaultUserPermission


class _RowAdmin(ReadOnlyAdmin):
    """One permission of one subject on one object; a rule has a row for each."""

    page, page_argument = "access_list", None
    list_filter = ("source", "permission")

    @admin.display(description="permission", ordering="permission__codename")
    def permission(self, row: Any) -> str:
        return str(row.permission.codename).partition("_")[0]


@admin.register(PolicyUserPermission, PoolUserPermission, QueueUserPermission, VaultUserPermission)
class UserRowAdmin(_RowAdmin):
    list_display = ("content_object", "user", "permission", "source", "created_by", "created_at")
    list_select_related = ("content_object", "user", "permission__content_type", "created_by")
    search_fields = ("content_object__name", "user__username")
    fields = list_display


@admin.register(
    PolicyGroupPermission, PoolGroupPermission, QueueGroupPermission, VaultGroupPermission
)
class GroupRowAdmin(_RowAdmin):
    list_display = ("content_object", "group", "permission", "source", "created_by", "created_at")
    list_select_related = ("content_object", "group", "permission__content_type", "created_by")
    search_fields = ("content_object__name", "group__name")
    fields = list_display
