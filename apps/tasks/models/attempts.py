"""Admissions of tasks, and the ledger of what they hold."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.core.ids import uuid7
from apps.nodes.models import Device, Node
from apps.policies.models import Policy, Pool, Queue
from apps.tasks.details import DETAIL_CHARS
from apps.tasks.models.tasks import Task
from apps.tasks.states import AttemptState, MemberState


class Attempt(models.Model):
    """One admission of a task, as it was decided: later changes of profiles do not touch it.

    `request` is what each member holds, in thousandths per key. `lock_token` is set by the
    process that works on the attempt; every edge it writes is guarded by it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="attempts")
    generation = models.PositiveIntegerField()
    state = models.CharField(
        max_length=10, choices=AttemptState.choices, default=AttemptState.ALLOCATED
    )
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="+")
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    request = models.JSONField(default=dict)
    replicas = models.PositiveIntegerField(default=1)
    # Launched when all of these are gone. Of each victim, `stops_for` is the one attempt that is
    # charged with its room; the others only stand where it has not left yet.
    blocked_by = models.ManyToManyField("self", symmetrical=False, related_name="beneficiaries")
    stops_for = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="victims"
    )
    allocated_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    # When the task last said that it had saved its state: what came before is not lost with it.
    checkpointed_at = models.DateTimeField(null=True, blank=True)
    stop_asked_at = models.DateTimeField(null=True, blank=True)
    # The task's state after a stop: queued, paused, aborted or failed.
    stop_target = models.CharField(max_length=10, blank=True)
    stop_detail = models.CharField(max_length=DETAIL_CHARS, blank=True)
    # Stopped by a pass, for the good of others. One that ended by itself before its node heard of
    # it keeps its own result.
    is_preempted = models.BooleanField(default=False, db_default=False)
    # Seats kept for the task's next admission, [node, [[index, thousandths], ...]] per member:
    # it is moved there as soon as it is gone from here. They are charged instead of the old ones.
    moves_to = models.JSONField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    detail = models.CharField(max_length=DETAIL_CHARS, blank=True)
    start_failures = models.PositiveIntegerField(default=0)
    not_before = models.DateTimeField(null=True, blank=True)
    lock_token = models.CharField(max_length=36, blank=True)
    log_bytes = models.PositiveBigIntegerField(default=0)
    log_is_cut = models.BooleanField(default=False)
    # Exactly which image all of its members run, as the first of them found it: the digest in its
    # registry, and the number on that node, which stands for images that never were in one.
    image_digest = models.CharField(max_length=71, blank=True, default="", db_default="")
    image_id = models.CharField(max_length=71, blank=True, default="", db_default="")
    # The vaults that it was launched with, [id, version] each, the lowest first, noted before its
    # first member is launched; never what they hold. Null: not noted.
    vaults = models.JSONField(null=True, blank=True)
    # Where the members of a gang meet, on the node of the first one; set before any is launched.
    master_port = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["task", "generation"], name="attempt_once"),
            # Never two live admissions of one task, whatever the code above believes.
            models.UniqueConstraint(
                fields=["task"],
                condition=~models.Q(state__in=["finished", "lost"]),
                name="one_live_attempt_per_task",
            ),
        ]
        indexes = [
            models.Index(
                fields=["state", "pool"],
                condition=~models.Q(state="finished"),
                name="attempt_live",
            ),
            # What a policy held over the last day.
            models.Index(fields=["policy", "ended_at"], name="attempt_by_end"),
        ]

    def __str__(self) -> str:
        return f"attempt {self.generation} of {self.task_id}"


class Holding(models.Model):
    """The ledger: what one member of an attempt holds until `released_at`.

    `amounts` in thousandths per key; `devices` as (index, thousandths) pairs. The columns after
    them are what the node last said about the member.
    """

    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="holdings")
    rank = models.PositiveIntegerField(default=0)
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    node = models.ForeignKey(
        Node, null=True, blank=True, on_delete=models.PROTECT, related_name="holdings"
    )
    amounts = models.JSONField(default=dict)
    devices = models.JSONField(default=list)
    released_at = models.DateTimeField(null=True, blank=True)

    state = models.CharField(
        max_length=10, choices=MemberState.choices, default=MemberState.ALLOCATED
    )
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    detail = models.CharField(max_length=DETAIL_CHARS, blank=True)
    log_offset = models.PositiveBigIntegerField(default=0)
    # It had been told to stop before it ended.
    is_stop_asked = models.BooleanField(default=False, db_default=False)
    # Its node went away under it: no fault of the task.
    is_lost = models.BooleanField(default=False, db_default=False)
    # The process that launches it; empty when nobody does.
    lock_token = models.CharField(max_length=36, blank=True, default="", db_default="")
    # Since when its node has all that a launch needs. Members of a gang are launched once all are
    # so far, so that none works while another one still waits for its image.
    ready_at = models.DateTimeField(null=True, blank=True)
    # When the first launch was sent, and to which boot of the node. From then on only the node
    # can tell whether the member is there.
    launched_at = models.DateTimeField(null=True, blank=True)
    boot_id = models.CharField(max_length=64, blank=True, default="", db_default="")
    # The node itself ends the member at this moment of that boot's clock; written here before the
    # node hears of it, so what it was granted is never later. Null: it runs without a lease.
    lease_until_s = models.FloatField(null=True, blank=True)
    # The node may forget the member's files once its result is here, and a day later even that
    # it was ever there.
    is_acknowledged = models.BooleanField(default=False)
    is_forgotten = models.BooleanField(default=False, db_default=False)

    class Meta:
        ordering = ["rank"]
        constraints = [
            models.UniqueConstraint(fields=["attempt", "rank"], name="holding_once"),
        ]
        indexes = [
            models.Index(
                fields=["node"],
                condition=models.Q(released_at__isnull=True) | models.Q(is_acknowledged=False),
                name="holding_open",
            ),
            models.Index(
                fields=["node", "id"],
                condition=models.Q(is_acknowledged=True, is_forgotten=False),
                name="holding_traces",
            ),
        ]

    def __str__(self) -> str:
        return f"member {self.rank} of {self.attempt_id}"


class HeldDevice(models.Model):
    """A device, or a share of it in thousandths, held until `released_at`."""

    holding = models.ForeignKey(Holding, on_delete=models.CASCADE, related_name="held_devices")
    device = models.ForeignKey(Device, on_delete=models.PROTECT, related_name="held")
    milli = models.PositiveIntegerField(default=1000)
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["device"],
                condition=models.Q(released_at__isnull=True, milli=1000),
                name="whole_device_held_once",
                violation_error_message=_("This device is given out already."),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.milli}/1000 of device {self.device_id}"


class AttemptLog(models.Model):
    """A piece of a member's output, in order of `offset` (bytes from the beginning)."""

    id = models.BigAutoField(primary_key=True)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="log_pieces")
    rank = models.PositiveIntegerField(default=0)
    offset = models.PositiveBigIntegerField()
    at = models.DateTimeField()
    data = models.BinaryField()

    class Meta:
        ordering = ["rank", "offset"]
        constraints = [
            models.UniqueConstraint(fields=["attempt", "rank", "offset"], name="log_piece_once"),
        ]

    def __str__(self) -> str:
        return f"{self.attempt_id} from {self.offset}"
