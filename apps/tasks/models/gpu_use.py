"""How much attempts use the GPUs that they hold: sampled on nodes once a minute."""

from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import models

from apps.tasks.models.attempts import Attempt, HeldDevice
from apps.tasks.models.tasks import Task

MS = timedelta(milliseconds=1)
SLOT = timedelta(minutes=5)
# A sample stands for the time since the one before, but for no more than this.
SAMPLE_MOST = timedelta(minutes=2)
# Samples are kept so long; the sums of usage keep what those of devices say.
SAMPLES_DAYS = 14
# A GPU whose mean utilisation is below this, in percent, is idle.
IDLE_PERCENT = 5
# Use that stops for less is not idle time.
PAUSE = timedelta(minutes=5)


def slot_of(at: datetime) -> datetime:
    """The beginning of its five minutes, in UTC."""
    at = at.astimezone(UTC)
    return at.replace(minute=at.minute - at.minute % 5, second=0, microsecond=0)


class DeviceUse(models.Model):
    """Five minutes of one held device, beginning at `at`.

    `sampled_ms` is how much of them samples stand for. In `known_ms` of that the utilisation was
    known: `busy` is its sum, in percent times milliseconds. In `process_ms` a process of the task
    had the device open. `memory_mb` is the most that was in use, `energy_mj` in millijoules.

    A sample that arrives after the row is summed up begins another one.
    """

    held = models.ForeignKey(HeldDevice, on_delete=models.CASCADE, related_name="uses")
    at = models.DateTimeField()
    sampled_ms = models.PositiveIntegerField()
    known_ms = models.PositiveIntegerField()
    busy = models.PositiveBigIntegerField()
    process_ms = models.PositiveIntegerField()
    energy_mj = models.PositiveBigIntegerField()
    memory_mb = models.PositiveBigIntegerField()
    is_booked = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["held", "at"],
                condition=models.Q(is_booked=False),
                name="device_use_once",
            )
        ]
        indexes = [
            models.Index(
                fields=["at"], condition=models.Q(is_booked=False), name="device_use_not_booked"
            ),
            # What is old enough to be removed, and what was sampled lately.
            models.Index(fields=["at"], name="device_use_by_time"),
        ]

    def __str__(self) -> str:
        return f"held device {self.held_id} at {self.at}"


class AttemptUse(models.Model):
    """The whole of an attempt: sums over its devices and its life, in the units of `DeviceUse`.

    `sampled_at` is the end of its last sample, `used_at` that of the last in which a GPU was not
    known to be idle. `memory_mb` is the most in use on one GPU. It stays when the samples are
    removed.
    """

    attempt = models.OneToOneField(
        Attempt, primary_key=True, on_delete=models.CASCADE, related_name="use"
    )
    sampled_ms = models.PositiveBigIntegerField()
    known_ms = models.PositiveBigIntegerField()
    busy = models.PositiveBigIntegerField()
    process_ms = models.PositiveBigIntegerField()
    energy_mj = models.PositiveBigIntegerField()
    memory_mb = models.PositiveBigIntegerField()
    sampled_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"use of {self.attempt_id}"

    @property
    def percent(self) -> int | None:
        """The mean utilisation; None where the GPUs do not tell theirs."""
        return round(self.busy / self.known_ms) if self.known_ms else None

    def idle_since(self, started_at: datetime | None) -> datetime | None:
        """Since when all its GPUs were idle when they were sampled last; None where one was not."""
        since = max(filter(None, (self.used_at, started_at)), default=None)
        if since is None or not self.known_ms or self.sampled_at - since < PAUSE:
            return None
        return since

    @property
    def energy_wh(self) -> float:
        """In watt hours; 0 where the GPUs do not tell their power."""
        return round(self.energy_mj / 3_600_000, 1)


class IdleWarning(models.Model):
    """Given to the owner of a running attempt whose GPUs have all been idle since `since`.

    It is stopped at `stop_at` at the earliest, `stop_minutes` being the rule of its queue then;
    both are null where the queue only warns. The row goes when the task uses its GPUs again.
    """

    attempt = models.OneToOneField(
        Attempt, primary_key=True, on_delete=models.CASCADE, related_name="idle_warning"
    )
    since = models.DateTimeField()
    warned_at = models.DateTimeField()
    stop_minutes = models.PositiveIntegerField(null=True)
    stop_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"idle warning of {self.attempt_id}"


class IdleExemption(models.Model):
    """A task that may be idle, whatever its queue says, as long as it stays in that queue."""

    task = models.OneToOneField(
        Task, primary_key=True, on_delete=models.CASCADE, related_name="idle_exemption"
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"idle exemption of {self.task_id}"
