"""The tasks of the demonstration that wait and run now; beat asks for the next ones."""

import random
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import RpmError
from apps.core.ids import first_uuid7
from apps.execution.own_account import SECONDS as SIMULATED_SECONDS
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import (
    ADMITTED_STATES,
    ENDED_STATES,
    LIVE_ATTEMPT_STATES,
    TaskState,
)
from apps.tasks.models import Attempt, Task
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.services.retention import ended_tasks_remove
from apps.tasks.services.stop import task_abort
from apps.tasks.task_spec import TaskSpec
from rpm.demonstration.catalog import GPU, PEOPLE, RESEARCH, TAG, TEAMS, USERNAMES
from rpm.demonstration.demand import (
    CLAIM,
    FAILING,
    FULL_RUN,
    FULL_RUN_WAITS,
    AliveTask,
    NextTask,
    next_tasks,
)
from rpm.demonstration.history import DAYS
from rpm.demonstration.presence import is_active

log = structlog.get_logger(__name__)
DEFAULT_S = 60
# Where the script is not run (`apps/execution/own_account.py`), a time limit ends what is to fail.
FAILS_WITHIN_S = 30
REMOVED_AT_ONCE = 100
QUARTER_S = 900
ALIVE_STATES = (TaskState.QUEUED, *ADMITTED_STATES)
SCRIPT = """at=0
while [ "$at" -lt "$1" ]; do
  echo "$at s of $1, on $RPM_DEVICES"
  # Each line starts an exchange with the node: a dozen, however long it lasts.
  step=$(($1/12+1)); [ "$step" -gt $(($1-at)) ] && step=$(($1-at))
  sleep "$step"
  at=$((at+step))
done
[ "$2" = 0 ] && echo done || echo "RuntimeError: the data is not there" >&2
exit "$2"
"""


def tasks_replenish(*, now: datetime | None = None) -> int:
    """Enqueue what the teams want next; nothing where the demonstration is paused or not loaded.

    Returns:
        How many tasks.
    """
    if not is_active():
        return 0
    now = (now or timezone.now()).astimezone(UTC)
    people = User.objects.filter(username__in=USERNAMES, is_active=True).in_bulk(
        field_name="username"
    )
    owners = [one.pk for one in people.values()]
    _old_tasks_remove(owners, now)
    try:
        _give_up(now)
        wanted = next_tasks(
            _alive(people),
            now,
            claimed_at=_last(owners, CLAIM),
            failed_at=_last(owners, FAILING),
        )
        rng = random.Random(now.isoformat())  # noqa: S311 - no secret
        return sum(_enqueue(one, people, rng) for one in wanted)
    except RpmError as error:
        # An administrator changed its teams or queues, or nothing may be enqueued now.
        log.info("demonstration.no_work", error=str(error))
        return 0


def _alive(people: Mapping[str, User]) -> list[AliveTask]:
    teams = {people[name].pk: team for team in TEAMS for name in PEOPLE[team] if name in people}
    live = Attempt.objects.filter(task__owner__in=list(teams), state__in=LIVE_ATTEMPT_STATES)
    began = dict(live.values_list("task", "allocated_at"))
    tasks = Task.objects.filter(
        owner__in=list(teams), queue__profile__name__in=list(GPU), state__in=ALIVE_STATES
    )
    return [
        AliveTask(
            team=teams[owner],
            name=name,
            profile=profile,
            began=began.get(pk),
            ends_at=began[pk] + timedelta(seconds=_seconds(content)) if pk in began else None,
        )
        for pk, owner, name, profile, content in tasks.values_list(
            "pk", "owner", "name", "queue__profile__name", "content"
        )
    ]


def _seconds(content: Mapping[str, Any]) -> int:
    text = content.get("environment", {}).get(SIMULATED_SECONDS, "")
    return int(text) if text.isdigit() else DEFAULT_S


def _last(owners: Collection[int], name: str) -> datetime | None:
    """When such a task was enqueued last."""
    tasks = Task.objects.filter(owner__in=owners, name__startswith=name).order_by("-pk")
    return tasks.values_list("created_at", flat=True).first()


def _enqueue(one: NextTask, people: Mapping[str, User], rng: random.Random) -> bool:
    """Whether the team can enqueue it: people and queues may be gone by now."""
    found = [people[name] for name in PEOPLE[one.team] if name in people]
    queues = Queue.objects.filter(
        policy__name=one.team, profile__name=one.profile, removed_at__isnull=True
    )
    queue = queues.values_list("pk", flat=True).first()
    if not found or queue is None:
        return False
    task_submit(actor=rng.choice(found), spec=_spec(one, queue, rng.randrange(1000, 10_000)))
    return True


def _spec(one: NextTask, queue: int, number: int) -> TaskSpec:
    simulated_s = one.seconds + (2 * FAILS_WITHIN_S if one.has_failed else 0)
    return TaskSpec(
        name=f"{one.name}-{number}",
        queue=queue,
        command=["/bin/sh", "-c", SCRIPT, "demo", str(one.seconds), str(int(one.has_failed))],
        environment={SIMULATED_SECONDS: str(simulated_s)},
        time_limit_s=_time_limit_s(one),
        is_preemptible=one.is_preemptible,
        tags=[TAG],
    )


def _time_limit_s(one: NextTask) -> int:
    """As people set it: in quarters of an hour, and long enough unless the task is to fail."""
    if one.has_failed:
        return one.seconds + FAILS_WITHIN_S
    return (one.seconds // QUARTER_S + 2) * QUARTER_S


def _give_up(now: datetime) -> None:
    """Its owner aborts a task that waits for a whole node for hours."""
    old = Task.objects.filter(
        owner__username__in=PEOPLE[RESEARCH],
        name__startswith=FULL_RUN,
        state=TaskState.QUEUED,
        created_at__lt=now - FULL_RUN_WAITS,
    )
    for task in old.select_related("owner"):
        task_abort(actor=task.owner, task=task)


def _old_tasks_remove(owners: Collection[int], now: datetime) -> None:
    """Its tasks stay as long as its history reaches back, whatever `RPM_KEEP_TASKS_DAYS` says."""
    before = now - timedelta(days=DAYS + 1)
    old = Task.objects.filter(
        owner__in=owners,
        pk__lt=first_uuid7(int(before.timestamp() * 1000)),
        ended_at__lt=before,
        state__in=ENDED_STATES,
    )
    rows = old.order_by("pk").values_list("pk", "tags")[:REMOVED_AT_ONCE]
    ended_tasks_remove([pk for pk, tags in rows if TAG in tags])
