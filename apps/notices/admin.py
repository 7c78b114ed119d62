"""Notices and their rules in the administration site, read-only: they are their users' own."""

from django.contrib import admin

from apps.core.admin_base import ReadOnlyAdmin
from apps.notices.models import Notice, NoticeRule, NoticeSettings


@admin.register(NoticeRule)
class NoticeRuleAdmin(ReadOnlyAdmin):
    list_display = ("user", "scope", "queue", "policy", "kinds", "wait_minutes", "by_email")
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


@admin.register(NoticeSettings)
class NoticeSettingsAdmin(ReadOnlyAdmin):
    list_display = ("user", "digest", "quiet_from", "quiet_until", "tries", "tried_at", "problem")
    list_select_related = ("user",)
    list_filter = ("digest",)
    search_fields = ("user__username",)
    fields = list_display
    page, page_argument = "notice_rule_list", None
