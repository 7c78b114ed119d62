"""Attempts, and the ledger of the devices and amounts that they hold."""

from django.db import models

from apps.core.ids import uuid7
from apps.nodes.models import Device, Node
from apps.policies.models import Policy, Pool, Queue
from apps.tasks.details import DETAIL_CHARS
from apps.tasks.lifecycle.states import AttemptState, AttemptTier, MemberState
from apps.tasks.models.tasks import Task


class Attempt(models.Model):
    """One admission of a task, as the pass decided it: later changes of profiles do not affect it.

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
    # The present tier, or that of its end; `PastTier` has those before.
    tier = models.CharField(
        max_length=10, choices=AttemptTier.choices, blank=True, default="", db_default=""
    )
    # Launched when all of these are gone. `stops_for` of a victim is the one attempt that is
    # charged for its capacity; the others only wait for its devices.
    blocked_by = models.ManyToManyField("self", symmetrical=False, related_name="beneficiaries")
    stops_for = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="victims"
    )
    # Up to when the sums of usage contain it, and whether they contain all of it.
    booked_until = models.DateTimeField(null=True, blank=True)
    is_booked = models.BooleanField(default=False, db_default=False)
    allocated_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    # When the task last reported that it had saved its state.
    checkpointed_at = models.DateTimeField(null=True, blank=True)
    stop_asked_at = models.DateTimeField(null=True, blank=True)
    # The task's state after a stop: queued, paused, aborted or failed.
    stop_target = models.CharField(max_length=10, blank=True)
    stop_detail = models.CharField(max_length=DETAIL_CHARS, blank=True)
    # A pass stopped it in favour of another task. An attempt that ended by itself before its node
    # received the stop keeps its own result.
    is_preempted = models.BooleanField(default=False, db_default=False)
    # The placement kept for the task's next attempt, [node, [[index, thousandths], ...]] per
    # member: the first pass after the end of this attempt admits the task there. It is charged
    # instead of the old one until then.
    moves_to = models.JSONField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    detail = models.CharField(max_length=DETAIL_CHARS, blank=True)
    start_failures = models.PositiveIntegerField(default=0)
    not_before = models.DateTimeField(null=True, blank=True)
    lock_token = models.CharField(max_length=36, blank=True)
    log_bytes = models.PositiveBigIntegerField(default=0)
    log_is_cut = models.BooleanField(default=False)
    # The image that all members run, as the first of them found it: its digest in the registry, and
    # its image ID on that node, which identifies images that never were in a registry.
    image_digest = models.CharField(max_length=71, blank=True, default="", db_default="")
    image_id = models.CharField(max_length=71, blank=True, default="", db_default="")
    # The vaults that it was launched with, [id, version] each, the lowest first, noted before the
    # first launch of a member; never their values. Null: not noted.
    vaults = models.JSONField(null=True, blank=True)
    # The rendezvous port of a gang, on the node of the first member; set before any is launched.
    master_port = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["task", "generation"], name="attempt_once"),
            # The database refuses two live attempts of one task.
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
            # Placements that are kept, a few at most; every pass looks for them.
            models.Index(
                fields=["state"],
                condition=models.Q(moves_to__isnull=False),
                name="attempt_moves",
            ),
            # What a policy held over the last day.
            models.Index(fields=["policy", "ended_at"], name="attempt_by_end"),
            # What is not summed up yet.
            models.Index(
                fields=["id"], condition=models.Q(is_booked=False), name="attempt_not_booked"
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.generation} of {self.task_id}"


class PastTier(models.Model):
    """A tier that an attempt had before its present one, `until` that moment."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="past_tiers")
    tier = models.CharField(max_length=10, choices=AttemptTier.choices, blank=True)
    until = models.DateTimeField()

    class Meta:
        ordering = ["until"]

    def __str__(self) -> str:
        return f"{self.tier} of {self.attempt_id}"


class Member(models.Model):
    """The ledger: what one member of an attempt holds until `released_at`.

    `amounts` in thousandths per key; `devices` as (index, thousandths) pairs. The columns after
    them are what the node last said about the member.
    """

    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="members")
    rank = models.PositiveIntegerField(default=0)
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    node = models.ForeignKey(
        Node, null=True, blank=True, on_delete=models.PROTECT, related_name="members"
    )
    amounts = models.JSONField(default=dict)
    devices = models.JSONField(default=list)
    # That of its node when usage of the attempt was summed up first, whatever the node says later.
    gpu_model = models.CharField(max_length=120, null=True, blank=True)  # not yet
    released_at = models.DateTimeField(null=True, blank=True)

    state = models.CharField(
        max_length=10, choices=MemberState.choices, default=MemberState.ALLOCATED
    )
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    detail = models.CharField(max_length=DETAIL_CHARS, blank=True)
    log_offset = models.PositiveBigIntegerField(default=0)
    # Its node had been asked to stop it before it ended.
    is_stop_asked = models.BooleanField(default=False, db_default=False)
    # Its node was lost: no fault of the task.
    is_lost = models.BooleanField(default=False, db_default=False)
    # The process that launches it; empty where none does.
    lock_token = models.CharField(max_length=36, blank=True, default="", db_default="")
    # Since when its node has all that a launch needs. Members of a gang are launched once all are
    # ready, so that none runs while another one still waits for its image.
    ready_at = models.DateTimeField(null=True, blank=True)
    # When the first launch was sent, and to which boot of the node. From then on only the node
    # can tell whether the member is there.
    launched_at = models.DateTimeField(null=True, blank=True)
    boot_id = models.CharField(max_length=64, blank=True, default="", db_default="")
    # The node itself ends the member at this moment of that boot's clock; written before the node
    # receives it, so the node's lease is never later. Null: it runs without a lease.
    lease_until_s = models.FloatField(null=True, blank=True)
    # The node may remove the member's files once its result is stored, and a day later its record
    # of the member.
    is_acknowledged = models.BooleanField(default=False)
    is_forgotten = models.BooleanField(default=False, db_default=False)

    class Meta:
        ordering = ["rank"]
        constraints = [
            models.UniqueConstraint(fields=["attempt", "rank"], name="member_once"),
        ]
        indexes = [
            models.Index(
                fields=["node"],
                condition=models.Q(released_at__isnull=True) | models.Q(is_acknowledged=False),
                name="member_open",
            ),
            models.Index(
                fields=["node", "id"],
                condition=models.Q(is_acknowledged=True, is_forgotten=False),
                name="member_traces",
            ),
        ]

    def __str__(self) -> str:
        return f"member {self.rank} of {self.attempt_id}"


# Members of preempted attempts that did not end before their node was asked to stop them.
WAS_STOPPED = models.Q(is_stop_asked=True) | models.Q(exit_code__isnull=True)


class HeldDevice(models.Model):
    """A device, or a share of it in thousandths, held until `released_at`."""

    member = models.ForeignKey(Member, on_delete=models.CASCADE, related_name="held_devices")
    device = models.ForeignKey(Device, on_delete=models.PROTECT, related_name="held")
    milli = models.PositiveIntegerField(default=1000)
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["device"],
                condition=models.Q(released_at__isnull=True, milli=1000),
                name="whole_device_held_once",
                violation_error_message="This device is given out already.",
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
