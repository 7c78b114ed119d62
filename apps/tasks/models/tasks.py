"""Tasks as their owners described them, and their groups."""

from datetime import datetime

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.core.fields import QuantitiesField
from apps.core.ids import uuid7
from apps.core.keyring import SealContext
from apps.policies.models import Queue
from apps.tasks.details import DETAIL_CHARS
from apps.tasks.lifecycle.states import HOLDS, LIVE_STATES, TaskState
from apps.tasks.task_spec import COLUMNS, TaskSpec, stored_spec


class TaskGroup(models.Model):
    """The equal tasks of a queue: the engine works on groups, never on single waiting tasks.

    `request` None means the live request of the profile; `user` is set only where a limit per
    person exists. `reason` is the last pass's reason for the first waiting task, `head`.
    """

    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="task_groups")
    # A hash of the columns below, up to exceeds_limit (`apps.tasks.shapes`).
    shape = models.CharField(max_length=64)
    request = QuantitiesField(null=True, default=None)
    replicas = models.PositiveIntegerField(null=True, blank=True)
    priority = models.IntegerField(default=0)
    is_preemptible = models.BooleanField(default=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    exceeds_limit = models.BooleanField(default=False)
    head_id = models.UUIDField(null=True, blank=True)
    reason_code = models.CharField(max_length=32, blank=True)
    reason = models.JSONField(default=dict, blank=True)
    reason_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["queue", "shape"], name="task_group_is_distinct"),
        ]

    def __str__(self) -> str:
        return f"task group {self.pk} of {self.queue_id}"


class Task(models.Model):
    """One task, as its owner described it, and its state."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    queue = models.ForeignKey(
        Queue, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    task_group = models.ForeignKey(
        TaskGroup, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="tasks", db_index=False
    )
    name = models.CharField(max_length=200)
    # The rest of its spec: what it runs (`CONTENT` of apps.tasks.task_spec).
    content = models.JSONField(
        default=dict, blank=True, db_default=models.Value({}, models.JSONField())
    )
    request = QuantitiesField(null=True, default=None)
    replicas = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(4096)]
    )
    priority = models.IntegerField(default=0)
    is_preemptible = models.BooleanField(default=True)
    is_restartable = models.BooleanField(default=True)
    time_limit_s = models.PositiveIntegerField(null=True, blank=True)
    retries = models.PositiveIntegerField(default=0, validators=[MaxValueValidator(100)])
    # Name to value, each sealed for this task, its owner and its name (`secret_context`).
    secrets = models.JSONField(
        default=dict, blank=True, db_default=models.Value({}, models.JSONField())
    )
    tags = models.JSONField(default=list, blank=True)
    # The bytes that all of the above counts for (`apps.tasks.sizes`).
    size_bytes = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    # The owner alone wrote all of the above: only then the owner's personal vaults reach the task,
    # and what the owner may mount as an administrator.
    is_by_owner = models.BooleanField(default=True, db_default=True, editable=False)

    state = models.CharField(
        max_length=10, choices=TaskState.choices, default=TaskState.DRAFT, db_default="draft"
    )
    # `Ineligibility`: why passes leave the task out while it waits; empty: they do not.
    ineligible_code = models.CharField(
        max_length=16, blank=True, default="", db_default="", editable=False
    )
    state_detail = models.CharField(max_length=DETAIL_CHARS, blank=True, default="")
    generation = models.PositiveIntegerField(default=0)
    preemptions = models.PositiveIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0)
    exit_code = models.IntegerField(null=True, blank=True)
    created_at = models.DateTimeField()
    # Its place among its equals: the time of submission, unless the task was moved.
    submitted_at = models.DateTimeField(null=True, blank=True)
    # Since when it waits, where that is not `submitted_at` because it was moved.
    waiting_since = models.DateTimeField(null=True, blank=True, editable=False)
    changed_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    # Of an array: how many elements it has, how many of them may be live at once, how many are
    # stored, and their indices where these are not all from 0. It waits until its elements ended.
    array_count = models.PositiveIntegerField(null=True, blank=True, editable=False)
    array_limit = models.PositiveIntegerField(null=True, blank=True, editable=False)
    array_next = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    array_indices = models.JSONField(null=True, blank=True, editable=False)
    # Of an array that runs again: the first array, from which it and others come.
    array_origin = models.UUIDField(null=True, blank=True, editable=False)
    # Of an element of an array: the array, and its own index.
    array = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="elements",
        db_index=False,
        editable=False,
    )
    array_index = models.PositiveIntegerField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-id"]
        permissions = [("log_task", "Can read the log")]
        indexes = [
            # The pass reads the heads of every task group from this one, past ineligible tasks.
            models.Index(
                fields=[
                    *("task_group", "ineligible_code", "submitted_at", "id", "waiting_since"),
                    "array_count",
                ],
                condition=models.Q(state="queued"),
                name="task_heads",
            ),
            # A group is removed when nothing refers to it, which the foreign key checks as well.
            models.Index(
                fields=["task_group"],
                condition=models.Q(task_group__isnull=False),
                name="task_of_group",
            ),
            # Pages read the order in which a queue starts its tasks.
            models.Index(
                fields=["queue", "-priority", "is_preemptible", "submitted_at", "id"],
                condition=models.Q(state="queued"),
                name="task_queue_order",
            ),
            models.Index(fields=["queue", "-id"], name="task_of_queue"),
            # With the size, so that the sum of a person's tasks reads nothing else.
            models.Index(fields=["owner", "-id", "size_bytes"], name="task_sizes_of_owner"),
            models.Index(
                fields=["-ended_at", "-id"],
                condition=models.Q(ended_at__isnull=False),
                name="task_ended",
            ),
            models.Index(
                fields=["owner"], condition=models.Q(state="draft"), name="task_drafts_of_owner"
            ),
            models.Index(
                fields=["state", "queue"],
                condition=models.Q(state__in=["allocated", "running", "stopping"]),
                name="task_admitted",
            ),
            # Every pass looks for arrays, and counts their elements.
            models.Index(
                fields=["id"],
                condition=models.Q(state="queued", array_count__isnull=False),
                name="task_open_arrays",
            ),
            models.Index(
                fields=["array", "state"],
                condition=models.Q(array__isnull=False),
                name="task_elements",
            ),
            # Those that have not ended: every pass counts them.
            models.Index(
                fields=["array", "state", "queue"],
                condition=models.Q(array__isnull=False, state__in=LIVE_STATES),
                name="task_live_elements",
            ),
            # An array runs again where none of the same family does.
            models.Index(
                fields=["array_origin"],
                condition=models.Q(array_origin__isnull=False),
                name="task_of_array_family",
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=~models.Q(state__in=["queued", "allocated", "running", "stopping"])
                | models.Q(
                    queue__isnull=False, task_group__isnull=False, submitted_at__isnull=False
                ),
                name="task_in_queue_has_a_queue",
            ),
            models.UniqueConstraint(
                fields=["array", "array_index"],
                condition=models.Q(array__isnull=False),
                name="array_index_once",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def secret_context(self, name: str) -> SealContext:
        """The context in which a secret opens: this task, as long as it has the same owner.

        An element holds the sealed secrets of its array.
        """
        key = self.array_id or self.pk
        return SealContext("tasks.task.secrets", (str(key), self.owner_id), name)

    @property
    def spec(self) -> TaskSpec:
        """The task as its owner described it, without the queue and the values of secrets.

        Raises:
            BadInput: what is stored is none.
        """
        return stored_spec(
            self.content, {**{name: getattr(self, name) for name in COLUMNS}, "hold": self.is_held}
        )

    @property
    def is_held(self) -> bool:
        """Whether it waits until a user releases it."""
        return self.ineligible_code in HOLDS

    @property
    def waits_since(self) -> datetime | None:
        """When it was really submitted, whatever its place in the queue."""
        return self.waiting_since or self.submitted_at


class ReasonChange(models.Model):
    """Why a task waited, from `at` on; a row when code or blocker changes."""

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="reason_changes")
    at = models.DateTimeField()
    code = models.CharField(max_length=32)
    blocker = models.CharField(max_length=200, blank=True)
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.code} since {self.at:%H:%M:%S}"


class IdempotencyKey(models.Model):
    """A user's own key for one enqueueing: same key and body, same task."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    body_hash = models.CharField(max_length=64)
    task_id = models.UUIDField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "key"], name="idempotency_key_once"),
        ]

    def __str__(self) -> str:
        return self.key
