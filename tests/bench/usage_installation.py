"""One installation for `usage.py`, which starts this in a process of its own.

A year of sums of 200 policies and 1,000 owners, and 5,000 live attempts. Prints one JSON line.
"""

import json
import statistics
import time
from collections.abc import Callable
from datetime import timedelta

import django

django.setup()

from django.conf import settings  # noqa: E402  # needs the settings
from django.contrib.auth.models import Group  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from django.test import Client  # noqa: E402

from apps.accounts.models import User  # noqa: E402
from apps.accounts.models.users import ADMINS  # noqa: E402
from apps.core import clock  # noqa: E402
from apps.policies.models import Policy, Pool, Queue  # noqa: E402
from apps.tasks.models import Attempt, Task  # noqa: E402
from apps.usage.models import OwnerDay, PolicyDay, QueueDay  # noqa: E402
from apps.usage.selectors.labels import UsageGroup  # noqa: E402
from apps.usage.selectors.periods import UsagePeriod  # noqa: E402
from apps.usage.selectors.report import usage_report  # noqa: E402
from apps.usage.services.sums import usage_book  # noqa: E402
from tests.bench.pages_installation import queries  # noqa: E402
from tests.bench.passes_installation import configure, insert_waiting, settle  # noqa: E402
from tests.bench.usage_history import history_insert  # noqa: E402

POLICIES, POOLS, OWNERS, DAYS = 200, 10, 1000, 365
LIVE, ENDED = 5_000, 20_000
ROUNDS = 11

# Every policy in three pools and all tiers on every day; every owner under two policies.
_POLICY_DAYS = """
INSERT INTO usage_policyday (at, policy_id, pool_id, model, tier, {measures})
SELECT date_trunc('day', now(), 'UTC') - d * interval '1 day', p.id, q.id, 'H100', t, {values}
FROM generate_series(0, %s) d, policies_policy p,
    (SELECT id FROM policies_pool ORDER BY id LIMIT 3) q,
    unnest(ARRAY['reserved', 'borrowed', 'over_quota']) t
"""
_OWNER_DAYS = """
INSERT INTO usage_ownerday (at, policy_id, owner_id, {measures})
SELECT date_trunc('day', now(), 'UTC') - d * interval '1 day', p.id, u.id, {values}
FROM generate_series(0, %s) d, accounts_user u, policies_policy p
WHERE p.id %% 100 = u.id %% 100
"""


def main() -> None:
    settings.ALLOWED_HOSTS = ["*"]
    call_command("migrate", verbosity=0)
    admin = User.objects.create_user("admin")
    admin.groups.add(Group.objects.get(name=ADMINS))
    configure(pools=POOLS, profiles=1, policies=POLICIES)
    User.objects.bulk_create(User(username=f"user {number}") for number in range(OWNERS))
    fill(_POLICY_DAYS)
    fill(_OWNER_DAYS)
    attempts_insert(admin, LIVE, is_ended=False)
    usage_book()
    history = history_insert(admin.pk)
    settle()
    client = Client()
    client.force_login(admin)
    month = UsagePeriod.last_days(30)
    reports = {
        by.value: median_ms(lambda by=by: usage_report(admin, month, by))  # type: ignore[misc]
        for by in (UsageGroup.POLICY, UsageGroup.POOL, UsageGroup.OWNER)
    }
    found = {
        "rows": sum(table.objects.count() for table in (PolicyDay, OwnerDay, QueueDay)),
        "live": LIVE,
        **history,
        "report_ms": reports,
        "page_ms": median_ms(lambda: client.get("/usage/")),
        "empty_ms": median_ms(lambda: client.get("/credentials/")),
        "queries": queries(client, "/usage/"),
        "hour_ms": hour_ms(),
        **booking(admin),
    }
    print(json.dumps(found), flush=True)  # noqa: T201  # the other process reads it


def hour_ms() -> float:
    """The time to book the next hour of every live attempt."""
    began = time.perf_counter()
    assert usage_book(now=clock.now() + timedelta(hours=1), run_s=600) >= LIVE
    return (time.perf_counter() - began) * 1000


def booking(admin: User) -> dict[str, float]:
    """The time to book attempts that ended, next to a plain UPDATE of the same columns."""
    attempts_insert(admin, ENDED, is_ended=True)
    ended = Attempt.objects.filter(ended_at__isnull=False, is_booked=False)
    with transaction.atomic():
        began = time.perf_counter()
        ended.update(booked_until=clock.now(), is_booked=True)
        updated_s = time.perf_counter() - began
        transaction.set_rollback(True)
    settle()
    began = time.perf_counter()
    assert usage_book(run_s=600) == ENDED
    return {
        "attempts": ENDED,
        "booked_ms": (time.perf_counter() - began) * 1000,
        "updated_ms": updated_s * 1000,
    }


def fill(statement: str) -> None:
    measures = ("held", "lost", "admitted", "ended", "completed", "failed", "preempted")
    others = ("waited_ms", "waits_1m", "waits_5m", "waits_15m", "waits_1h", "waits_4h")
    names = (*measures, *others, "waits_12h", "waits_1d", "waits_longer")
    values = ["86400000000", *(["7"] * (len(names) - 1))]
    with connection.cursor() as cursor:
        sql = statement.format(measures=", ".join(names), values=", ".join(values))
        cursor.execute(sql, [DAYS - 1])


def attempts_insert(admin: User, count: int, *, is_ended: bool) -> None:
    """As many tasks with an attempt each, of the last hours."""
    known = set(Task.objects.values_list("pk", flat=True))
    insert_waiting(admin.pk, count)
    tasks = Task.objects.exclude(pk__in=known).values_list("pk", flat=True)
    queues = list(Queue.objects.values_list("pk", "policy_id"))
    pools = list(Pool.objects.values_list("pk", flat=True))
    now = clock.now()
    Attempt.objects.bulk_create(
        [
            Attempt(
                task_id=task,
                generation=1,
                queue_id=queues[number % len(queues)][0],
                policy_id=queues[number % len(queues)][1],
                pool_id=pools[number % len(pools)],
                request={"gpu": 1000},
                tier="reserved",
                state="finished" if is_ended else "running",
                allocated_at=now - timedelta(minutes=number % 400 + 1),
                ended_at=now if is_ended else None,
                exit_code=0 if is_ended else None,
            )
            for number, task in enumerate(tasks)
        ],
        batch_size=2000,
    )
    assert Policy.objects.count() == POLICIES


def median_ms(ask: Callable[[], object]) -> float:
    """The first time is not counted."""
    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:]) * 1000


if __name__ == "__main__":
    main()
