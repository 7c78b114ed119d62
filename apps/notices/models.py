"""Rules of users about what they are notified of, and the notices that follow from them."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from apps.policies.models import Policy, Queue


class NoticeKind(models.TextChoices):
    """What a rule notifies of; `waiting` needs a time, all others are events."""

    STARTED = "started", "Started"
    ENDED = "ended", "Completed or aborted"
    FAILED = "failed", "Failed or rejected"
    PREEMPTED = "preempted", "Preempted"
    PAUSED = "paused", "Paused"
    WAITING = "waiting", "Waiting for longer than its time"


class NoticeScope(models.TextChoices):
    """Whose tasks a rule is about: the user's own, or all of a queue or policy that they manage."""

    OWN = "own", "Own tasks"
    QUEUE = "queue", "A queue"
    POLICY = "policy", "A policy"


class WaitLimit(models.IntegerChoices):
    """Minutes in a queue after which a rule notifies that a task still waits."""

    MINUTES_10 = 10, "10 minutes"
    MINUTES_30 = 30, "30 minutes"
    HOUR = 60, "1 hour"
    HOURS_3 = 180, "3 hours"
    HOURS_6 = 360, "6 hours"
    HOURS_12 = 720, "12 hours"
    DAY = 1440, "1 day"
    DAYS_3 = 4320, "3 days"
    WEEK = 10_080, "1 week"


class NoticeDigest(models.TextChoices):
    """How notices that rules send by e-mail are put together."""

    AT_ONCE = "at_once", "At once"
    HOURLY = "hourly", "Each hour"
    DAILY = "daily", "Each day at 8:00"


class NoticeRule(models.Model):
    """What one user wants to be notified of, and of which tasks."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notice_rules"
    )
    scope = models.CharField(max_length=8, choices=NoticeScope.choices)
    queue = models.ForeignKey(
        Queue, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    policy = models.ForeignKey(
        Policy, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    # Values of `NoticeKind`, in their order.
    kinds = models.JSONField(default=list)
    wait_minutes = models.PositiveIntegerField(null=True, blank=True, choices=WaitLimit.choices)
    created_at = models.DateTimeField(default=timezone.now)
    by_email = models.BooleanField(default=False, db_default=False)
    # The last event before: earlier ones make no notices.
    after_event = models.BigIntegerField(default=0, editable=False)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(scope="own", queue__isnull=True, policy__isnull=True)
                | models.Q(scope="queue", queue__isnull=False, policy__isnull=True)
                | models.Q(scope="policy", queue__isnull=True, policy__isnull=False),
                name="notice_rule_names_what_its_scope_says",
            ),
        ]

    def __str__(self) -> str:
        return f"{', '.join(self.kinds)}: {self.subject}"

    @property
    def subject(self) -> str:
        """Which tasks, in words."""
        if self.scope == NoticeScope.OWN:
            return "own tasks"
        target = self.queue or self.policy
        return f"{self.scope} {target.name}" if target else f"a {self.scope} that you may not see"


class Notice(models.Model):
    """One thing that happened to a task, for one user.

    The task may be removed, or hidden from the user by now: `notices_visible_to` asks again.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices", db_index=False
    )
    at = models.DateTimeField()
    kind = models.CharField(max_length=12, choices=NoticeKind.choices)
    task_id = models.UUIDField()
    # The event, and its kind such as `task.completed`; no event says that a task still waits.
    event_id = models.BigIntegerField(null=True, blank=True)
    event_kind = models.CharField(max_length=64)
    # `exit_code` of a task that ended, `minutes` of one that waits.
    data = models.JSONField(default=dict, blank=True)
    read_at = models.DateTimeField(null=True, blank=True)
    # A rule sends it by e-mail, and no mail has it yet.
    is_mail_due = models.BooleanField(default=False, db_default=False)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(
                fields=["user", "id"],
                condition=models.Q(is_mail_due=True),
                name="notice_to_mail",
            ),
            models.Index(fields=["user", "-id"], name="notice_of_user"),
            models.Index(fields=["at"], name="notice_at"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "event_id"],
                condition=models.Q(event_id__isnull=False),
                name="notice_once_per_event",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.event_kind} {self.task_id}"


class NoticeSettings(models.Model):
    """When a user gets notices by e-mail, and the mail that is being sent."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        primary_key=True,
        on_delete=models.CASCADE,
        related_name="notice_settings",
    )
    digest = models.CharField(
        max_length=8, choices=NoticeDigest.choices, default=NoticeDigest.AT_ONCE
    )
    # Full hours in the user's time zone between which no mail is sent.
    quiet_from = models.PositiveSmallIntegerField(null=True, blank=True)
    quiet_until = models.PositiveSmallIntegerField(null=True, blank=True)
    # The last notice of the mail that is being sent, 0 for none; a repeated mail has the same ones.
    mail_until = models.BigIntegerField(default=0)
    tries = models.PositiveSmallIntegerField(default=0)
    tried_at = models.DateTimeField(null=True, blank=True)
    # Why the last mail was not sent; empty once one was.
    problem = models.CharField(max_length=500, blank=True)

    class Meta:
        verbose_name_plural = "notice settings"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(quiet_from__isnull=True, quiet_until__isnull=True)
                | models.Q(quiet_from__lt=24, quiet_until__lt=24),
                name="notice_quiet_hours_are_hours",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.get_digest_display()}"


class NoticeCursor(models.Model):
    """How far the event log is read: one row, locked by the only one who makes notices."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    # All events up to this one are read.
    event_id = models.BigIntegerField()
    # The next ones to read, once these transactions have ended (`event_horizon`).
    horizon_id = models.BigIntegerField(default=0)
    horizon_writers = models.JSONField(default=list)
    # Tasks that that had waited long enough by then have their notices.
    waits_until = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="notice_cursor_is_one")
        ]

    def __str__(self) -> str:
        return f"event {self.event_id}"
