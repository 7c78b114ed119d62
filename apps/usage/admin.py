"""Rates in the administration site, read-only: what they cost so far follows from them."""

from django.contrib import admin

from apps.core.admin_base import ReadOnlyAdmin
from apps.usage.models import Rate


@admin.register(Rate)
class RateAdmin(ReadOnlyAdmin):
    list_display = ("valid_from", "pool", "model", "key", "price", "created_at")
    list_select_related = ("pool",)
    list_filter = ("key",)
    search_fields = ("pool__name", "model", "key")
    fields = list_display
    page, page_argument = "rate_list", None
