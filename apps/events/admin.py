"""The events and the audit log in the administration site, read-only."""

from django.contrib import admin

from apps.core.admin_base import ReadOnlyAdmin
from apps.events.models import AuditEntry, Event


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("at", "kind", "object_type", "object_id", "actor")
    list_select_related = ("actor",)
    list_filter = ("kind",)
    search_fields = ("=object_id", "kind", "actor__username")


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "verb", "actor", "object_type", "object_name", "via")
    list_filter = ("via",)
    search_fields = ("=object_id", "=verb", "=actor")
    fields = (
        *list_display,
        "object_id",
        "acted_by",
        "before",
        "after",
        "details",
        "reason",
        "request_id",
        "address",
        "position",
        "hash",
    )
    page, page_argument = "audit_list", None
