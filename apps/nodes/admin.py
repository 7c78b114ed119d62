"""Volumes. Nodes are in apps/execution, whose services try a connection before it is kept."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.core.admin_base import ServiceAdmin
from apps.nodes.models import Volume
from apps.nodes.services import volume_change, volume_create, volume_remove


@admin.register(Volume)
class VolumeAdmin(ServiceAdmin):
    list_display = ("name", "path", "is_read_only", "scope", "pool")
    list_select_related = ("pool",)
    list_filter = ("scope",)
    search_fields = ("name", "path", "description")
    autocomplete_fields = ("pool",)
    fields = ("name", "description", "path", "is_read_only", "scope", "pool")

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
