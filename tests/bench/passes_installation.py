"""One installation for `passes.py`, which starts this in processes of its own.

build       1,000 queues and 50 pools, every pool full of running work
fill N      N waiting tasks, spread over all queues
serve       a full pass for every line on standard input; its figures as one JSON line
"""

import json
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import django

django.setup()

from django.contrib.auth.models import Group  # noqa: E402  # needs the models
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

from apps.accounts.models import User  # noqa: E402
from apps.allocation import services  # noqa: E402
from apps.nodes.models import Device, Node, NodeState, Transport  # noqa: E402
from apps.policies.models import (  # noqa: E402
    Policy,
    PolicyAmount,
    Pool,
    PoolLink,
    Profile,
    Queue,
)
from apps.tasks.models import Run, Task  # noqa: E402
from apps.tasks.shapes import Shape  # noqa: E402

POOLS = 50
NODES_PER_POOL = 4
GPUS_PER_NODE = 8
PROFILES = 20
POLICIES = 50
QUEUES = PROFILES * POLICIES
POOLS_PER_PROFILE = 5
SIZES = (1, 2, 4, 8)
RESERVED_MILLI = 16_000

_TASKS = """
    INSERT INTO tasks_task (
        id, queue_id, run_id, owner_id, name, image, command, environment, working_dir, volumes,
        priority, is_preemptible, is_restartable, retries, tags, state, state_detail, generation,
        preemptions, failures, created_at, submitted_at, changed_at
    )
    SELECT gen_random_uuid(), run.queue_id, run.id, %s, 'waiting', '', '["true"]', '{}', '', '[]',
        0, true, true, 0, '[]', 'queued', '', 0, 0, 0, moment, moment, moment
    FROM generate_series(1, %s) AS number
    JOIN (SELECT id, queue_id, row_number() OVER (ORDER BY id) AS place FROM tasks_run) AS run
        ON run.place = 1 + number %% (SELECT count(*) FROM tasks_run)
    CROSS JOIN LATERAL (SELECT now() - number * interval '1 second' AS moment) AS submitted
"""


def build() -> None:
    """Configuration, nodes and, by passes, as much running work as fits."""
    call_command("migrate", verbosity=0)
    owner = User.objects.create(username="owner")
    _configure()
    while True:
        _insert(owner.pk, QUEUES * 4)
        if services.run_pass().placed == 0:
            break
    _settle()


def fill(count: int) -> None:
    """Leave exactly `count` waiting tasks."""
    missing = count - Task.objects.filter(state="queued").count()
    if missing < 0:
        raise RuntimeError(f"{-missing} more tasks wait than the {count} asked for")
    _insert(User.objects.get().pk, missing)
    _settle()
    # The first pass after the change has new things to say; the ones measured have not.
    services.run_pass()


def serve() -> None:
    """Passes on demand, until standard input ends."""
    spent = _clocks()
    for line in sys.stdin:
        spent.clear()
        began = time.perf_counter()
        if line.strip() == "count":
            with CaptureQueriesContext(connection) as captured:
                outcome = services.run_pass()
            queries = len(captured)
        else:
            outcome, queries = services.run_pass(), 0
        total = time.perf_counter() - began
        if not outcome.ran or outcome.placed or outcome.waiting != QUEUES:
            raise RuntimeError(f"not a pass over full pools: {outcome}")
        parts = {name: seconds * 1000 for name, seconds in spent.items()}
        print(  # noqa: T201  # the other process reads it
            json.dumps({"total": total * 1000, "queries": queries, **parts}), flush=True
        )


def _clocks() -> dict[str, float]:
    """Let the steps of a pass add the seconds they take to a dictionary."""
    spent: dict[str, float] = {}

    def timed(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(step)
        def run(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return step(*args, **kwargs)
            finally:
                spent[name] = spent.get(name, 0.0) + time.perf_counter() - began

        return run

    steps = {
        "load": "load",
        "decide": "decide",
        "apply_plan": "apply",
        "apply_reasons": "apply",
        "_record": "apply",
    }
    for step, name in steps.items():
        setattr(services, step, timed(name, getattr(services, step)))
    return spent


def _configure() -> None:
    group = Group.objects.create(name="team")
    gpus = NODES_PER_POOL * GPUS_PER_NODE
    pools = Pool.objects.bulk_create(
        Pool(name=f"pool {number}", capacity={"gpu": str(gpus)}) for number in range(POOLS)
    )
    profiles = Profile.objects.bulk_create(
        Profile(
            name=f"profile {number}",
            request={"gpu": str(SIZES[number % len(SIZES)])},
        )
        for number in range(PROFILES)
    )
    PoolLink.objects.bulk_create(
        PoolLink(
            profile=profile,
            pool=pools[(number * 5 + place) % POOLS],
            name=f"link {number} {place}",
            routing_rank=place,
            execution_rank=number,
        )
        for number, profile in enumerate(profiles)
        for place in range(POOLS_PER_PROFILE)
    )
    policies = Policy.objects.bulk_create(
        Policy(name=f"policy {number}", position=number, group=group) for number in range(POLICIES)
    )
    PolicyAmount.objects.bulk_create(
        PolicyAmount(policy=policy, key="gpu", reserved_text="16", reserved_milli=RESERVED_MILLI)
        for policy in policies
    )
    queues = Queue.objects.bulk_create(
        Queue(name=f"queue-{p}-{q}", profile=profile, policy=policy, queuing_rank=q)
        for p, profile in enumerate(profiles)
        for q, policy in enumerate(policies)
    )
    Run.objects.bulk_create(Run(queue=queue, shape=Shape().digest()) for queue in queues)
    _make_nodes(pools)


def _make_nodes(pools: list[Pool]) -> None:
    nodes = Node.objects.bulk_create(
        Node(
            name=f"node {pool.name} {number}",
            pool=pool,
            transport=Transport.LOCAL,
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


def _insert(owner: int, count: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_TASKS, [owner, count])


def _settle() -> None:
    """What autovacuum does on a server that has a moment."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def main() -> None:
    command, *rest = sys.argv[1:]
    if command == "fill":
        fill(int(rest[0]))
    else:
        {"build": build, "serve": serve}[command]()


main()
