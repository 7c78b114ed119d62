"""Samples of GPUs: each moment counts once, for what held the GPU then."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.nodes.models import Device, Node
from apps.tasks.models import Attempt, AttemptUse, DeviceUse, HeldDevice, Member
from apps.tasks.services.gpu_use import DeviceSample, device_samples_record
from apps.tasks.services.retention import Retention, expired_remove
from tests.allocation.state import apply, begin, decided, end, enqueue, latest, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db

BEGIN = datetime(2026, 3, 1, 10, 3, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.h100, name="h1")


@pytest.fixture
def attempt(example: Example, alice: User, node: Node) -> Attempt:
    """It runs since long before the samples, and holds one GPU."""
    [task] = enqueue(alice, example.dev_queue)
    apply(*decided())
    begin(latest(task))
    Member.objects.update(started_at=BEGIN - timedelta(days=1))
    HeldDevice.objects.exclude(device__index=0).delete()
    return latest(task)


def sample(node: Node, at: datetime, percent: int | None = 50, *, has_process: bool = True) -> int:
    """All devices of the node tell the same; power in milliwatts is 1000 times the percent."""
    uuids = list(Device.objects.filter(node=node).values_list("uuid", flat=True))
    power = None if percent is None else percent * 1000
    processes = {
        (uuid, str(one.attempt.task_id), one.attempt.generation, one.rank): 700
        for uuid in uuids
        for one in Member.objects.select_related("attempt")
        if has_process
    }
    samples = [DeviceSample(uuid, 4096, percent, power) for uuid in uuids]
    return device_samples_record(node, samples, processes, now=at)


def rows(*columns: str) -> list[tuple[object, ...]]:
    return list(DeviceUse.objects.order_by("held", "at").values_list(*columns))


def test_a_sample_counts_since_the_one_before_in_steps_of_five_minutes(
    node: Node, attempt: Attempt
) -> None:
    assert sample(node, BEGIN) == 0, "nothing is known of the time before the first one"
    assert sample(node, BEGIN + MINUTE, 50) == 1
    assert sample(node, BEGIN + 2 * MINUTE, 100, has_process=False) == 1

    first, second = BEGIN.replace(minute=0, second=0), BEGIN.replace(minute=5, second=0)
    assert rows("at", "sampled_ms", "known_ms", "busy", "process_ms", "energy_mj") == [
        (first, 90_000, 90_000, 50 * 60_000 + 100 * 30_000, 60_000, 50 * 60_000 + 100 * 30_000),
        (second, 30_000, 30_000, 100 * 30_000, 0, 100 * 30_000),
    ]
    use = AttemptUse.objects.get()
    assert (use.sampled_ms, use.percent, use.memory_mb) == (120_000, 75, 4096)
    assert use.used_at == use.sampled_at == BEGIN + 2 * MINUTE
    assert use.energy_wh == 2.5


def test_gaps_are_unknown_and_time_that_comes_again_counts_once(
    node: Node, attempt: Attempt
) -> None:
    sample(node, BEGIN)
    assert sample(node, BEGIN + 60 * MINUTE) == 1
    assert AttemptUse.objects.get().sampled_ms == 120_000, "an hour without samples is not known"

    assert sample(node, BEGIN + 59 * MINUTE) == 0, "the clock went back by a minute"
    assert sample(node, BEGIN + 60 * MINUTE) == 0
    assert AttemptUse.objects.get().sampled_ms == 120_000
    assert sample(node, BEGIN + 61 * MINUTE) == 1
    assert AttemptUse.objects.get().sampled_ms == 180_000

    for minutes in range(50, 61):
        assert sample(node, BEGIN + minutes * MINUTE) == 0, "it went back by minutes"
    assert AttemptUse.objects.get().sampled_ms == 180_000
    assert sample(node, BEGIN + 62 * MINUTE) == 1

    assert sample(node, BEGIN - MINUTE) == 0, "it went back by more than an hour"
    assert sample(node, BEGIN) == 1, "and sampling goes on"


def test_a_task_counts_from_its_start_and_not_beyond_its_end(node: Node, attempt: Attempt) -> None:
    Member.objects.update(started_at=BEGIN + 45 * timedelta(seconds=1))
    sample(node, BEGIN)
    sample(node, BEGIN + MINUTE)
    assert AttemptUse.objects.get().sampled_ms == 15_000

    end(attempt)
    assert sample(node, BEGIN + 2 * MINUTE) == 0


def test_shares_of_a_gpu_tell_nothing_of_what_others_do(node: Node, attempt: Attempt) -> None:
    HeldDevice.objects.update(milli=500)
    sample(node, BEGIN)
    sample(node, BEGIN + MINUTE, 90)

    columns = ("sampled_ms", "known_ms", "busy", "process_ms", "energy_mj", "memory_mb")
    assert rows(*columns) == [(60_000, 0, 0, 60_000, 0, 700)]
    use = AttemptUse.objects.get()
    assert (use.percent, use.energy_wh, use.memory_mb) == (None, 0.0, 700)
    assert use.used_at == BEGIN + MINUTE, "it is not known to be idle"


def test_gpus_that_do_not_tell_are_unknown_and_made_up_ones_are_not_sampled(
    node: Node, attempt: Attempt
) -> None:
    sample(node, BEGIN)
    sample(node, BEGIN + MINUTE, None)
    assert (AttemptUse.objects.get().percent, AttemptUse.objects.get().known_ms) == (None, 0)

    Device.objects.update(is_simulated=True)
    assert sample(node, BEGIN + 2 * MINUTE) == 0


def test_what_a_node_invents_stays_within_bounds(node: Node, attempt: Attempt) -> None:
    other = Device.objects.exclude(held__isnull=False).first()
    assert other is not None
    held = Device.objects.get(held__isnull=False)
    key = (held.uuid, str(attempt.task_id), attempt.generation, 0)
    hostile = [
        DeviceSample(held.uuid, 2**31 - 1, 2**31 - 1, 2**31 - 1),
        DeviceSample("GPU-of-somebody-else", 1, 1, 1),
    ]
    device_samples_record(node, [], {}, now=BEGIN)
    processes = {key: 2**60, ("GPU", "no number", 1, 0): 5}
    assert device_samples_record(node, hostile, processes, now=BEGIN + MINUTE) == 1

    use = AttemptUse.objects.get()
    assert (use.percent, use.memory_mb) == (100, 2**31 - 1)
    assert use.energy_mj == 10_000_000 * 60


def test_samples_go_after_two_weeks_but_not_before_they_are_summed_up(
    node: Node, attempt: Attempt
) -> None:
    sample(node, BEGIN)
    for number in (1, 2, 3):
        sample(node, BEGIN + number * MINUTE)
    for_ever = Retention(logs=None, tasks=None)
    later = BEGIN + timedelta(days=15)
    assert expired_remove(for_ever, now=later).samples == 0

    DeviceUse.objects.filter(at__lt=BEGIN).update(is_booked=True)
    assert expired_remove(for_ever, now=later - timedelta(days=2)).samples == 0
    assert expired_remove(for_ever, now=later).samples == 1
    assert DeviceUse.objects.count() == 1
    assert AttemptUse.objects.count() == 1, "the sum over the attempt stays"


def test_an_ended_task_is_kept_until_its_samples_are_summed_up(
    node: Node, attempt: Attempt
) -> None:
    sample(node, BEGIN)
    sample(node, BEGIN + MINUTE)
    end(attempt, code=0, is_stop_asked=False)
    Attempt.objects.update(is_booked=True)
    Member.objects.update(is_acknowledged=True)
    soon = Retention(logs=None, tasks=timedelta(days=1))
    later = timezone.now() + timedelta(days=3)
    assert expired_remove(soon, now=later).tasks == 0

    DeviceUse.objects.update(is_booked=True)
    assert expired_remove(soon, now=later).tasks == 1
    assert not AttemptUse.objects.exists()
