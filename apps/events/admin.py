"""The log in the administration site, read-only."""

from django.contrib import admin

from apps.core.admin_base import ReadOnlyAdmin
from apps.events.models import Event


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("at", "kind", "object_type", "object_id", "actor")
    list_select_related = ("actor",)
    list_filter = ("kind",)
    search_fields = ("=object_id", "kind", "actor__username")
