"""Admin pages of the passes that decided something."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.allocation.models import PassRecord
from apps.core.admin_base import ReadOnlyAdmin


@admin.register(PassRecord)
class PassRecordAdmin(ReadOnlyAdmin):
    """Its snapshot is downloaded as a scenario file through REST."""

    list_display = ("id", "at", "duration_ms", "placed", "preempted", "moved", "skipped")
    search_fields = ("=id",)
    fields = (*list_display, "decisions")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        passes: QuerySet[Any] = super().get_queryset(request).defer("snapshot")
        return passes
