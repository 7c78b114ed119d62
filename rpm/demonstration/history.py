"""Thirty days of ended tasks of the demonstration, as rows, summed up by the product itself."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from django.db import transaction

from apps.accounts.models import User
from apps.allocation.engine.model.snapshot import SettingsSnapshot, Snapshot
from apps.allocation.loader import load
from apps.core.ids import uuid7
from apps.nodes.models import Device
from apps.policies.models import Policy, Queue
from apps.tasks.lifecycle.states import AttemptState, MemberState, TaskState
from apps.tasks.models import Attempt, DeviceUse, HeldDevice, Member, PastTier, Task
from apps.tasks.services.enqueue.new_tasks import columns
from apps.tasks.services.gpu_use import HeldUse, held_uses_add, stretches
from apps.tasks.task_spec import TaskSpec
from apps.usage.selectors.current_usage import amounts_of
from apps.usage.services.reservations import reservations_record
from apps.usage.services.sums import usage_book
from rpm.demonstration.arrivals import arrivals_of
from rpm.demonstration.catalog import GPU, TAG, TEAMS, USERNAMES
from rpm.demonstration.playback import PastAttempt, PastTask, play
from rpm.demonstration.presence import nodes
from rpm.demonstration.samples import simulated_use

DAYS = 30
HOUR = timedelta(hours=1)
BATCH = 200
BOOKED_WITHIN_S = 60.0
STARTS_WITHIN = timedelta(seconds=3)
PREEMPTED = "Preempted by a task with a better tier or priority."
# That of a process that ends on SIGTERM is 143.
EXIT_CODES = {TaskState.COMPLETED: 0, TaskState.FAILED: 1, TaskState.ABORTED: 143}


def history_load(*, now: datetime) -> int:
    """Store the tasks of the days before `now` and sum them up. Returns how many tasks."""
    now = now.astimezone(UTC).replace(microsecond=0)
    demonstrated = Policy.objects.filter(name__in=TEAMS, removed_at__isnull=True)
    reservations_record(
        now=now - timedelta(days=DAYS), policies=list(demonstrated.values_list("pk", flat=True))
    )
    rows = _Rows(now)
    for one in past_tasks(now=now):
        rows.add(one)
    with transaction.atomic():
        rows.store()
    usage_book(now=now, run_s=BOOKED_WITHIN_S)
    # They stood for hours, and pages take each for five minutes.
    DeviceUse.objects.filter(held__device__node__in=nodes(), is_booked=True).delete()
    return len(rows.tasks)


def past_tasks(*, now: datetime) -> list[PastTask]:
    """What the teams enqueued in the last days, and what became of it in the present pools."""
    days = [(now - timedelta(days=DAYS - number)).date() for number in range(DAYS + 1)]
    arrivals = [one for day in days for one in arrivals_of(day) if one.at < now]
    policies = Policy.objects.filter(name__in=TEAMS, removed_at__isnull=True)
    queues = Queue.objects.filter(
        policy__in=policies, profile__name__in=list(GPU), removed_at__isnull=True
    )
    names = queues.values_list("policy__name", "profile__name", "pk")
    return play(
        _empty_snapshot(),
        arrivals,
        queues={(team, profile): pk for team, profile, pk in names},
        amounts=amounts_of(policies.values_list("pk", flat=True)),
        until=now,
    )


def _empty_snapshot() -> Snapshot:
    """The live pools and policies as they are meant to work, without any work."""
    snapshot = load(now_us=0).snapshot
    return replace(snapshot, settings=SettingsSnapshot(), queued_groups=(), running=(), usual=())


class _Rows:
    """The rows of all tasks, stored at once."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.owners = {one.username: one for one in User.objects.filter(username__in=USERNAMES)}
        self.tasks: list[Task] = []
        self.members: list[Member] = []
        self.tiers: list[PastTier] = []
        # By identity of the attempt, which others refer to.
        self.attempts: dict[int, Attempt] = {}
        self.victims: list[PastAttempt] = []

    def add(self, past: PastTask) -> None:
        arrival, last = past.arrival, past.attempts[-1]
        # A victim that still waited: its owner gave up.
        end = TaskState.ABORTED if last.stops_for is not None else arrival.end
        ended_at = (last.ended if last.stops_for is None else None) or self.now
        spec = TaskSpec(name=arrival.name, command=["./run.sh", arrival.name], tags=[TAG])
        task = Task(
            pk=_id_at(arrival.at),
            owner=self.owners[arrival.person],
            queue_id=int(last.queue.id),
            state=end,
            state_detail=_detail(arrival.person, end),
            generation=len(past.attempts),
            preemptions=sum(one.stops_for is not None for one in past.attempts),
            failures=int(end == TaskState.FAILED),
            exit_code=EXIT_CODES[end],
            created_at=arrival.at,
            submitted_at=arrival.at,
            changed_at=ended_at,
            ended_at=ended_at,
            **columns(spec),
        )
        self.tasks.append(task)
        for generation, one in enumerate(past.attempts, start=1):
            self._add_attempt(task, generation, one)

    def _add_attempt(self, task: Task, generation: int, past: PastAttempt) -> None:
        victim = past.stops_for is not None
        end = TaskState.ABORTED if victim else TaskState(task.state)
        started_at = min(past.began + STARTS_WITHIN, past.ended or past.began)
        attempt = Attempt(
            pk=_id_at(past.began),
            task=task,
            generation=generation,
            state=AttemptState.FINISHED,
            queue_id=int(past.queue.id),
            policy_id=int(past.queue.policy),
            pool_id=int(past.pool),
            request={"gpu": past.gpu_milli},
            tier=past.tier,
            allocated_at=past.began,
            started_at=started_at,
            checkpointed_at=past.saved_at,
            stop_asked_at=past.ended if end == TaskState.ABORTED else None,
            stop_target=_stop_target(end, is_victim=victim),
            stop_detail=PREEMPTED if victim else _detail(task.owner.username, end),
            is_preempted=victim,
            ended_at=past.ended,
            exit_code=EXIT_CODES[end],
        )
        self.attempts[id(past)] = attempt
        self.victims += [past] if victim else []
        self.tiers += [PastTier(attempt=attempt, tier=t, until=at) for t, at in past.past_tiers]
        self.members += [
            Member(
                attempt=attempt,
                rank=rank,
                pool_id=attempt.pool_id,
                node_id=int(one.node),
                amounts=attempt.request,
                devices=[[share.index, share.milli] for share in one.devices],
                released_at=past.ended,
                state=MemberState.EXITED,
                started_at=started_at,
                ended_at=past.ended,
                exit_code=attempt.exit_code,
                is_stop_asked=bool(attempt.stop_target),
                # No node knows of it, or is asked about it.
                is_acknowledged=True,
                is_forgotten=True,
            )
            for rank, one in enumerate(past.members)
        ]

    def store(self) -> None:
        for victim in self.victims:
            self.attempts[id(victim)].stops_for = self.attempts[id(victim.stops_for)]
        Task.objects.bulk_create(self.tasks, batch_size=BATCH)
        Attempt.objects.bulk_create(self.attempts.values(), batch_size=BATCH)
        PastTier.objects.bulk_create(self.tiers, batch_size=BATCH)
        Member.objects.bulk_create(self.members, batch_size=BATCH)
        self._store_devices()

    def _store_devices(self) -> None:
        """What each member held, and how it used that: an hour is one sample."""
        devices = {(one.node_id, one.index): one for one in Device.objects.all()}
        held = [
            HeldDevice(
                member=member,
                device=devices[member.node_id or 0, index],
                milli=milli,
                released_at=member.released_at,
            )
            for member in self.members
            for index, milli in member.devices
        ]
        HeldDevice.objects.bulk_create(held, batch_size=BATCH)
        held_uses_add(use for one in held for use in _uses(one))


def _uses(held: HeldDevice) -> Iterator[HeldUse]:
    attempt = held.member.attempt
    name, since, until = attempt.task.name, attempt.started_at, attempt.ended_at
    if since is not None and until is not None:
        for began, ended in stretches(since, until, HOUR):
            yield simulated_use(
                name,
                milli=held.milli,
                held=held.pk,
                attempt=attempt.pk,
                since=began,
                until=ended,
            )


def _detail(person: str, end: TaskState) -> str:
    if end == TaskState.ABORTED:
        return f"aborted by {person}"
    return "Ended with code 1." if end == TaskState.FAILED else ""


def _stop_target(end: TaskState, *, is_victim: bool) -> str:
    if is_victim:
        return TaskState.QUEUED
    return TaskState.ABORTED if end == TaskState.ABORTED else ""


def _id_at(at: datetime) -> uuid.UUID:
    """As an id that was made at that moment."""
    return uuid7(at_ms=int(at.timestamp() * 1000))
