"""One installation for `permissions.py`, which starts this in a process of its own.

500 policies with a group and a queue each, and 2,000 people. Prints one JSON line: for each page
the median milliseconds and the queries of an administrator, who needs no permission, of a member
of 100 groups, and of one of four; with those of a page with nothing on it to compare.
"""

import json
import statistics
import time
from collections import defaultdict

import django

django.setup()

from django.conf import settings  # noqa: E402  # needs the settings
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

from apps.policies.models import Queue  # noqa: E402
from apps.tasks.services.enqueue.submission import task_submit  # noqa: E402
from apps.tasks.task_spec import TaskSpec  # noqa: E402
from tests.bench.passes_installation import settle  # noqa: E402
from tests.bulk_data import BulkData, bulk_data  # noqa: E402

POLICIES, PEOPLE = 500, 2000
TASKS = 1000
ROUNDS = 15
EMPTY = "/credentials/"
PAGES = (
    "/",
    "/tasks/?view=all",
    "/queues/",
    "/policies/",
    "/settings/vaults/",
    "/api/v1/queues/",
    "/api/v1/tasks/",
    "/api/v1/policies/",
)


def main() -> None:
    settings.ALLOWED_HOSTS = ["*"]
    call_command("migrate", verbosity=0)
    there = bulk_data(policies=POLICIES, people=PEOPLE, tag="p")
    enqueue(there.queues, there)
    settle()
    # A queue that a member and the plain one both see, and one task in it.
    detail = f"/queues/{there.queues[0].pk}/"
    clients = {}
    for name, one in (("admin", there.admin), ("many", there.member), ("few", there.plain)):
        clients[name] = Client()
        clients[name].force_login(one)
    paths = [*PAGES, detail, EMPTY]
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    for turn in range(ROUNDS + 1):
        for path in paths:
            for name, client in clients.items():
                seconds = timed(client, path)
                if turn:
                    taken[path, name].append(seconds * 1000)
    median = {key: statistics.median(times) for key, times in taken.items()}
    figures = [
        {
            "path": "/queues/<id>/" if path == detail else path,
            "ms": {name: median[path, name] for name in clients},
            "queries": {name: queries(client, path) for name, client in clients.items()},
            "empty_ms": {name: median[EMPTY, name] for name in clients},
        }
        for path in paths
    ]
    print(json.dumps(figures), flush=True)  # noqa: T201  # the other process reads it


def enqueue(queues: list[Queue], there: BulkData) -> None:
    """Work in all queues, so that lists have something to show."""
    for number in range(TASKS):
        queue = queues[number % len(queues)]
        task_submit(
            actor=there.admin,
            spec=TaskSpec(name=f"task {number}", queue=queue.name, command=["true"]),
        )


def timed(client: Client, path: str) -> float:
    """Seconds to the whole answer."""
    began = time.perf_counter()
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    return time.perf_counter() - began


def queries(client: Client, path: str) -> int:
    """How many of them the page takes."""
    with CaptureQueriesContext(connection) as captured:
        client.get(path)
    return len(captured)


if __name__ == "__main__":
    main()
