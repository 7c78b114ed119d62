"""One installation for `passes.py`, which starts this in processes of its own.

build       1,000 queues and 50 pools, every pool full of running work
fill N      N waiting tasks, spread over all queues
serve       a full pass for every line on standard input; its figures as one JSON line:
            nothing has changed (still), 500 tasks have ended (ended), or one policy reserves 100
            GPUs more and claims them (claimed)
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import django

django.setup()

from django.contrib.auth.models import Group  # noqa: E402  # needs the models
from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402
from django.utils import timezone  # noqa: E402

from apps.accounts.models import User  # noqa: E402
from apps.allocation import services  # noqa: E402
from apps.nodes.models import Device, Node, NodeState, Runtime, Transport  # noqa: E402
from apps.policies.models import (  # noqa: E402
    Policy,
    PolicyAmount,
    Pool,
    PoolLink,
    Profile,
    Queue,
)
from apps.tasks.lifecycle.states import AttemptState, MemberState, TaskState  # noqa: E402
from apps.tasks.models import Attempt, HeldDevice, Member, Task, TaskGroup  # noqa: E402
from apps.tasks.shapes import TaskShape  # noqa: E402

POOLS = 50
NODES_PER_POOL = 100
GPUS_PER_NODE = 8
PROFILES = 20
POLICIES = 50
QUEUES = PROFILES * POLICIES
POOLS_PER_PROFILE = 5
SIZES = (1, 2, 2, 4)
RESERVED_MILLI = 16_000
ENDED = 500
CLAIMED_MILLI = 100_000

_TASKS = """
    INSERT INTO tasks_task (
        id, queue_id, task_group_id, owner_id, name, content, priority, is_preemptible,
        is_restartable, retries, tags, state, state_detail, generation, preemptions, failures,
        created_at, submitted_at, changed_at
    )
    SELECT gen_random_uuid(), run.queue_id, run.id, %s, 'waiting', '{"command": ["true"]}',
        0, true, true, 0, '[]', 'queued', '', 0, 0, 0, moment, moment, moment
    FROM generate_series(1, %s) AS number
    JOIN (SELECT id, queue_id, row_number() OVER (ORDER BY id) AS place FROM tasks_taskgroup) AS run
        ON run.place = 1 + number %% (SELECT count(*) FROM tasks_taskgroup)
    CROSS JOIN LATERAL (SELECT now() - number * interval '1 second' AS moment) AS submitted
"""


def build() -> None:
    """Configuration, nodes and, by passes, as much running work as fits."""
    call_command("migrate", verbosity=0)
    owner = User.objects.create(username="owner")
    configure()
    each = 4
    while True:
        insert_waiting(owner.pk, QUEUES * each)
        placed = services.run_pass().placed
        if placed == 0:
            break
        if placed < QUEUES * each:
            each = 1
    settle()


def fill(count: int) -> None:
    """Leave exactly `count` waiting tasks."""
    missing = count - Task.objects.filter(state="queued").count()
    if missing < 0:
        raise RuntimeError(f"{-missing} more tasks wait than the {count} asked for")
    insert_waiting(User.objects.get().pk, missing)
    settle()
    # The first pass after the change has new things to say; the ones measured have not.
    services.run_pass()


def serve() -> None:
    """Passes on demand, until standard input ends."""
    spent = _clocks()
    before = {"still": lambda: None, "ended": _end_some, "claimed": _claim_more}
    for line in sys.stdin:
        command, *rest = line.split()
        before[command]()
        spent.clear()
        # What was counted before stays in the log.
        connection.queries_log.clear()
        with CaptureQueriesContext(connection) if rest == ["count"] else nullcontext():
            began, worked = time.perf_counter(), time.process_time()
            outcome = services.run_pass()
            spent["total"] += time.perf_counter() - began
            spent["cpu"] += time.process_time() - worked
            spent["total queries"] = len(connection.queries_log)
        is_right = outcome.placed > 0 or (command == "still" and outcome.waiting == QUEUES)
        if not outcome.ran or not is_right or outcome.skipped:
            raise RuntimeError(f"not a pass over full pools, {command}: {outcome}")
        found = {"placed": outcome.placed, "preempted": outcome.preempted, **spent}
        print(json.dumps(found), flush=True)  # noqa: T201  # the other process reads it


def _end_some() -> None:
    """500 tasks go, spread over all pools, before any of their members was launched."""
    begun = Attempt.objects.filter(state=AttemptState.ALLOCATED).order_by("pool", "pk")
    ids = list(begun.values_list("pk", flat=True))
    gone = ids[:: len(ids) // ENDED][:ENDED]
    now = timezone.now()
    with transaction.atomic():
        HeldDevice.objects.filter(member__attempt__in=gone).update(released_at=now)
        Member.objects.filter(attempt__in=gone).update(
            state=MemberState.EXITED, released_at=now, ended_at=now, is_acknowledged=True
        )
        Task.objects.filter(attempts__in=gone).update(state=TaskState.STOPPING)
        Task.objects.filter(attempts__in=gone).update(state=TaskState.ABORTED)
        Attempt.objects.filter(pk__in=gone).update(state=AttemptState.FINISHED, ended_at=now)
    settle()


def _claim_more() -> None:
    """The policy that reserves least, the first of them, reserves 100 GPUs more than it holds."""
    first = PolicyAmount.objects.order_by("reserved_milli", "policy__position")[0]
    held = Member.objects.filter(attempt__policy=first.policy, released_at__isnull=True)
    first.reserved_milli = CLAIMED_MILLI + sum(
        milli for devices in held.values_list("devices", flat=True) for _, milli in devices
    )
    first.reserved_text = str(first.reserved_milli // 1000)
    first.save()


def _clocks() -> dict[str, float]:
    """Let the steps of a pass add the seconds and queries that they take to a dictionary."""
    spent: dict[str, float] = defaultdict(float)

    def timed(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(step)
        def run(*args: Any, **kwargs: Any) -> Any:
            asked = len(connection.queries_log)
            began = time.perf_counter()
            try:
                return step(*args, **kwargs)
            finally:
                spent[name] += time.perf_counter() - began
                spent[f"{name} queries"] += len(connection.queries_log) - asked

        return run

    steps = (
        (services, "load", "load"),
        (services.ENGINE, "decide", "decide"),
        (services, "apply_plan", "apply"),
        (services, "apply_reasons", "apply"),
        (services, "_record", "apply"),
    )
    for owner, step, name in steps:
        setattr(owner, step, timed(name, getattr(owner, step)))
    return spent


def configure(*, pools: int = POOLS, profiles: int = PROFILES, policies: int = POLICIES) -> None:
    """So many of each, a queue for every policy with every profile, and nodes for all pools."""
    group = Group.objects.create(name="team")
    gpus = NODES_PER_POOL * GPUS_PER_NODE
    all_pools = Pool.objects.bulk_create(
        Pool(name=f"pool {number}", capacity={"gpu": str(gpus)}) for number in range(pools)
    )
    all_profiles = Profile.objects.bulk_create(
        Profile(
            name=f"profile {number}",
            request={"gpu": str(SIZES[number % len(SIZES)])},
        )
        for number in range(profiles)
    )
    PoolLink.objects.bulk_create(
        PoolLink(
            profile=profile,
            pool=all_pools[(number * 5 + place) % pools],
            name=f"link {number} {place}",
            routing_rank=place,
            execution_rank=number,
        )
        for number, profile in enumerate(all_profiles)
        for place in range(POOLS_PER_PROFILE)
    )
    all_policies = Policy.objects.bulk_create(
        Policy(name=f"policy {number}", position=number, group=group) for number in range(policies)
    )
    PolicyAmount.objects.bulk_create(
        PolicyAmount(policy=policy, key="gpu", reserved_text="16", reserved_milli=RESERVED_MILLI)
        for policy in all_policies
    )
    queues = Queue.objects.bulk_create(
        Queue(name=f"queue-{p}-{q}", profile=profile, policy=policy, queuing_rank=q)
        for p, profile in enumerate(all_profiles)
        for q, policy in enumerate(all_policies)
    )
    TaskGroup.objects.bulk_create(
        TaskGroup(queue=queue, shape=TaskShape().digest()) for queue in queues
    )
    _make_nodes(all_pools)


def _make_nodes(pools: list[Pool]) -> None:
    nodes = Node.objects.bulk_create(
        Node(
            name=f"node {pool.name} {number}",
            pool=pool,
            transport=Transport.LOCAL,
            runtime=Runtime.PROCESS,
            state=NodeState.HEALTHY,
            capacity={"gpu": str(GPUS_PER_NODE), "cpu": "128", "memory_mb": "1000000"},
        )
        for pool in pools
        for number in range(NODES_PER_POOL)
    )
    Device.objects.bulk_create(
        Device(node=node, index=index, uuid=f"GPU-{node.pk}-{index}")
        for node in nodes
        for index in range(GPUS_PER_NODE)
    )


def insert_waiting(owner: int, count: int) -> None:
    """So many tasks, spread over all queues."""
    with connection.cursor() as cursor:
        cursor.execute(_TASKS, [owner, count])


def settle() -> None:
    """What autovacuum does on a server that has a moment."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def main() -> None:
    command, *rest = sys.argv[1:]
    if command == "fill":
        fill(int(rest[0]))
    else:
        {"build": build, "serve": serve}[command]()


if __name__ == "__main__":
    main()
