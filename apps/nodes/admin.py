"""Volumes. Nodes are in apps/execution, whose services try a connection before it is kept."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.access.admin import GroupRowAdmin, UserRowAdmin
from apps.core.admin_base import ReadOnlyAdmin, ServiceAdmin
from apps.nodes.models import Installation, Volume, VolumeGroupPermission, VolumeUserPermission
from apps.nodes.services import volume_change, volume_create, volume_remove


@admin.register(Volume)
class VolumeAdmin(ServiceAdmin):
    list_display = ("name", "path", "is_read_only", "is_restricted", "scope", "pool")
    list_select_related = ("pool",)
    list_filter = ("scope", "is_restricted")
    search_fields = ("name", "path", "description")
    autocomplete_fields = ("pool",)
    fields = ("name", "description", "path", "is_read_only", "is_restricted", "scope", "pool")
    page, page_argument = "access_list", None

    def get_view_on_site_url(self, obj: Any = None) -> str | None:
        """The rules of the volume."""
        page = super().get_view_on_site_url(obj)
        return f"{page}?kind=volume&object={obj.pk}" if page else None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        live: QuerySet[Any] = super().get_queryset(request).filter(removed_at__isnull=True)
        return live

    def save_all(self, request: HttpRequest, form: Any, formsets: list[Any]) -> None:  # noqa: ARG002  # one signature for all
        actor: Any = request.user
        if form.instance.pk is None:
            form.instance.pk = volume_create(actor=actor, values=form.cleaned_data).pk
            return
        values = {name: form.cleaned_data[name] for name in form.changed_data}
        if values:
            volume_change(actor=actor, volume=form.instance, values=values)

    def remove(self, request: HttpRequest, row: Volume) -> None:
        volume_remove(actor=request.user, volume=row)  # type: ignore[arg-type]  # only people enter the admin site


@admin.register(Installation)
class InstallationAdmin(ReadOnlyAdmin):
    """What restores and maintenance left behind; commands and REST change it."""

    list_display = ("id", "maintenance_until", "restored_at", "restore_confirmed_at")
    search_fields = ("=id",)
    fields = list_display


admin.site.register(VolumeUserPermission, UserRowAdmin)
admin.site.register(VolumeGroupPermission, GroupRowAdmin)
