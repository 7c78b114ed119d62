"""Serializers of notices and their rules."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.serializers import NameSerializer, StrictSerializer
from apps.notices.models import (
    Notice,
    NoticeDigest,
    NoticeKind,
    NoticeRule,
    NoticeScope,
    NoticeSettings,
    WaitLimit,
)
from apps.notices.selectors import TaskNotice, mail_address

MOST_READ = 1000


class NoticeSerializer(serializers.ModelSerializer[Notice]):
    """Of a task that the user sees now; `queue` is null where the user sees the task alone."""

    event = serializers.CharField(source="event_kind", help_text="Such as `task.completed`.")
    task = serializers.UUIDField(source="task_id")
    name = serializers.SerializerMethodField()
    queue = serializers.SerializerMethodField()

    class Meta:
        model = Notice
        fields = ["id", "at", "kind", "event", "task", "name", "queue", "data", "read_at"]
        read_only_fields = fields

    def get_name(self, notice: Notice) -> str:
        """The task's name now."""
        return self._of(notice).task.name

    @extend_schema_field({"type": "string", "nullable": True})
    def get_queue(self, notice: Notice) -> str | None:
        """The queue that the task is in now."""
        queue = self._of(notice).task.queue
        return queue.name if queue is not None else None

    def _of(self, notice: Notice) -> TaskNotice:
        known: dict[int, TaskNotice] = self.context["known"]
        return known[notice.pk]


class NoticeQuerySerializer(StrictSerializer):
    unread = serializers.BooleanField(default=False, help_text="Only those that are not read.")
    cursor = serializers.CharField(required=False)
    limit = serializers.CharField(required=False)


class NoticesReadSerializer(StrictSerializer):
    ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**63 - 1),
        allow_null=True,
        default=None,
        max_length=MOST_READ,
        help_text="Left out: all.",
    )


class UnreadSerializer(serializers.Serializer[Any]):
    unread = serializers.IntegerField(help_text="How many are not read.")


class NoticeRuleSerializer(serializers.ModelSerializer[NoticeRule]):
    queue = NameSerializer(allow_null=True)
    policy = NameSerializer(allow_null=True)
    kinds = serializers.ListField(child=serializers.ChoiceField(NoticeKind.choices))

    class Meta:
        model = NoticeRule
        fields = ["id", "scope", "queue", "policy", "kinds", "wait_minutes", "by_email"]
        fields += ["created_at"]
        read_only_fields = fields


class NoticeRuleChangeSerializer(StrictSerializer):
    """`wait_minutes` belongs to the kind `waiting`."""

    kinds = serializers.ListField(
        child=serializers.ChoiceField(NoticeKind.choices),
        allow_empty=False,
        max_length=len(NoticeKind.values),
    )
    wait_minutes = serializers.ChoiceField(WaitLimit.choices, allow_null=True, required=False)
    by_email = serializers.BooleanField(
        required=False, help_text="Also by e-mail, as the settings say; false if left out."
    )


class NoticeRuleCreateSerializer(NoticeRuleChangeSerializer):
    scope = serializers.ChoiceField(NoticeScope.choices)
    queue = serializers.CharField(
        allow_null=True, default=None, help_text="Name or id of a queue that you manage."
    )
    policy = serializers.CharField(
        allow_null=True, default=None, help_text="Name or id of a policy that you manage."
    )


class NoticeSettingsSerializer(serializers.ModelSerializer[NoticeSettings]):
    """`email` is where mails go; null where there is no confirmed address or no mail server."""

    email = serializers.SerializerMethodField()

    class Meta:
        model = NoticeSettings
        fields = ["digest", "quiet_from", "quiet_until", "email", "problem"]
        read_only_fields = fields

    @extend_schema_field({"type": "string", "nullable": True})
    def get_email(self, row: NoticeSettings) -> str | None:
        """The confirmed address of the user."""
        return mail_address(row.user) or None


class NoticeSettingsChangeSerializer(StrictSerializer):
    """Hours are full hours from 0 to 23, in the time zone of the account; both or neither."""

    digest = serializers.ChoiceField(NoticeDigest.choices)
    quiet_from = serializers.IntegerField(min_value=0, max_value=23, allow_null=True)
    quiet_until = serializers.IntegerField(min_value=0, max_value=23, allow_null=True)
