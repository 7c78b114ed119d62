"""Notices and their rules in the administration site, read-only: they are their users' own."""

from django.contrib import admin

from apps.core.admin_base import ReadOnlyAdmin
from apps.notices.models import Notice, NoticeRule


@admin.register(NoticeRule)
class NoticeRuleAdmin(ReadOnlyAdmin):
    list_display = ("user", "scope", "queue", "policy", "kinds", "wait_minutes", "created_at")
    list_select_related = ("user", "queue", "policy")
    list_filter = ("scope",)
    search_fields = ("user__username", "queue__name", "policy__name")
    fields = list_display
    page, page_argument = "notice_rule_list", None


@admin.register(Notice)
class NoticeAdmin(ReadOnlyAdmin):
    list_display = ("user", "at", "kind", "event_kind", "task_id", "read_at")
    list_select_related = ("user",)
    list_filter = ("kind",)
    search_fields = ("user__username", "event_kind")
    fields = list_display
    page, page_argument = "notice_list", None
