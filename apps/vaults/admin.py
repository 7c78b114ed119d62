"""Vaults in the administration site: which there are, and whose, never what they hold."""

from django.contrib import admin

from apps.core.admin_base import ReadOnlyAdmin
from apps.vaults.models import Vault


@admin.register(Vault)
class VaultAdmin(ReadOnlyAdmin):
    list_display = ("name", "owner", "group", "format", "is_active", "version", "updated_at")
    list_select_related = ("owner", "group")
    list_filter = ("format", "is_active")
    search_fields = ("name", "owner__username", "group__name")
    fields = (*list_display, "size", "updated_by", "created_at", "removed_at")
    page = "vault_detail"
