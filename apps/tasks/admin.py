"""Tasks and attempts in the admin site, read-only: only services change them."""

import json
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from apps.access.admin import GroupRowAdmin, UserRowAdmin
from apps.core.admin_base import ReadOnlyAdmin, ReadOnlyInline
from apps.tasks.models import Attempt, Member, Task, TaskGroupPermission, TaskUserPermission
from apps.tasks.redaction import redact


class AttemptInline(ReadOnlyInline):
    model = Attempt
    fields = (
        *("generation", "state", "pool", "image_digest"),
        *("allocated_at", "started_at", "ended_at", "exit_code"),
    )
    readonly_fields = fields
    show_change_link = True


class MemberInline(ReadOnlyInline):
    model = Member
    fields = ("rank", "node", "amounts", "devices", "state", "exit_code", "released_at")
    readonly_fields = fields


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    page = "task_detail"
    list_display = ("name", "state", "queue", "owner", "priority", "submitted_at", "ended_at")
    list_select_related = ("queue", "owner")
    list_filter = ("state",)
    search_fields = ("id", "name", "owner__username", "queue__name")
    inlines = (AttemptInline,)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ARG002  # Django's
        """All columns; values of redacted variables are hidden."""
        hidden = {"content", "secrets"}
        names = [field.name for field in Task._meta.fields if field.name not in hidden]
        return [*names, "spec_content", "secret_names"]

    @admin.display(description="Content")
    def spec_content(self, task: Task) -> str:
        shown = redact(task.spec.environment, task.owner.redacted_variables)
        return json.dumps({**task.content, "environment": shown}, ensure_ascii=False)

    @admin.display(description="Secrets")
    def secret_names(self, task: Task) -> str:
        return ", ".join(sorted(task.secrets))


@admin.register(Attempt)
class AttemptAdmin(ReadOnlyAdmin):
    page = "task_detail"
    page_argument = "task_id"
    list_display = ("task", "generation", "state", "pool", "queue", "allocated_at", "ended_at")
    list_select_related = ("task", "pool", "queue")
    list_filter = ("state",)
    search_fields = ("id", "task__id", "task__name")
    inlines = (MemberInline,)


admin.site.register(TaskUserPermission, UserRowAdmin)
admin.site.register(TaskGroupPermission, GroupRowAdmin)
