"""One installation for `tasks.py`, which starts this in a process of its own.

Prints one JSON line with the fields of its `Figure`.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import django

django.setup()

from django.conf import settings  # noqa: E402  # needs the settings
from django.contrib.auth.models import Group  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402

import rpm.wsgi  # noqa: E402, F401  # as a server's process loads it
from apps.accounts.models import User  # noqa: E402
from apps.accounts.models.users import ADMINS  # noqa: E402
from apps.allocation.services import run_pass  # noqa: E402
from apps.policies.models import Queue  # noqa: E402
from apps.tasks.models import Task  # noqa: E402
from tests.bench.passes_installation import (  # noqa: E402
    POOLS_PER_PROFILE,
    configure,
    insert_waiting,
    settle,
)

TASKS = int(os.environ.get("RPM_BENCH_TASKS", "1000000"))
ELEMENTS = 10_000
AT_ONCE = 1000
ROUNDS = int(os.environ.get("RPM_BENCH_ROUNDS", "15"))
V1 = "/api/v1/tasks/"


def main() -> None:
    settings.ALLOWED_HOSTS = ["*"]
    call_command("migrate", verbosity=0)
    admin = User.objects.create_user("admin")
    admin.groups.add(Group.objects.get(name=ADMINS))
    client = Client()
    client.force_login(admin)
    configure(pools=POOLS_PER_PROFILE, profiles=1, policies=5)
    # More than the pools hold, so that the passes below start nothing.
    insert_waiting(admin.pk, POOLS_PER_PROFILE * 1000)
    run_pass()
    insert_waiting(admin.pk, ELEMENTS)
    found: dict[str, float] = {"without_ms": median_ms(run_pass)}
    found |= enqueued(client)
    # The elements of the first step are stored before what is measured.
    run_pass()
    found["with_ms"] = median_ms(run_pass)
    found |= aborted(client) | listed(client, admin) | commanded(client)
    print(json.dumps(found), flush=True)  # noqa: T201  # the other process reads it


def median_ms(act: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """The median of several, after one that does not count."""
    act()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) * 1000


def enqueued(client: Client) -> dict[str, float]:
    """Requests for arrays, next to the statement that none of them can do without."""
    queue = Queue.objects.order_by("pk")[0]
    body = {"name": "sweep", "queue": queue.name, "command": ["true"], "array": {"size": ELEMENTS}}
    made: list[str] = []

    def enqueue() -> None:
        answer = client.post(V1, body, content_type="application/json")
        assert answer.status_code == 201, answer.content
        made.append(answer.json()["id"])

    array_ms = median_ms(enqueue)
    # One of them waits on.
    abort(client, made[1:])
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE bare (LIKE tasks_task INCLUDING ALL)")
        rows = iter(made)
        insert = "INSERT INTO bare SELECT * FROM tasks_task WHERE id = %s"
        insert_ms = median_ms(lambda: cursor.execute(insert, [next(rows)]))
    return {"array_ms": array_ms, "insert_ms": insert_ms}


def abort(client: Client, ids: list[str]) -> None:
    """Abort all of these; those that one request does not reach go into the next, as REST says."""
    left = ids
    while left:
        body = {"action": "abort", "tasks": left[:AT_ONCE]}
        answer = client.post(f"{V1}bulk-actions/", body, content_type="application/json").json()
        assert answer["done"], answer["results"][:1]
        done = {one["task"] for one in answer["results"] if one["error"] is None}
        left = [one for one in left if one not in done]


def aborted(client: Client) -> dict[str, float]:
    waiting = Task.objects.filter(state="queued", array=None, array_count=None)
    ids = [str(pk) for pk in waiting.values_list("pk", flat=True)[:ELEMENTS]]
    began, used = time.perf_counter(), time.process_time()
    abort(client, ids)
    return {
        "aborted": len(ids),
        "abort_ms": (time.perf_counter() - began) * 1000,
        "abort_cpu_ms": (time.process_time() - used) * 1000,
    }


def listed(client: Client, admin: User) -> dict[str, float]:
    # Each statement within the time that statements have.
    while missing := TASKS - Task.objects.count():
        insert_waiting(admin.pk, min(missing, 50_000))
    settle()
    page = client.get(f"{V1}?limit=50").json()
    return {
        "tasks": Task.objects.count(),
        "page_ms": median_ms(lambda: client.get(f"{V1}?limit=50")),
        "next_ms": median_ms(lambda: client.get(page["next"])),
        "html_ms": median_ms(lambda: client.get("/tasks/")),
    }


def commanded(client: Client) -> dict[str, float]:
    """The processor time of `rpmctl list`, which gets the answers of before from a server."""
    answers = {
        "/api/v1/account/": client.get("/api/v1/account/").content,
        V1: json.dumps({**client.get(f"{V1}?limit=50").json(), "next": None}).encode(),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that the base class calls
            content = answers[self.path.partition("?")[0]]
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    environment = {**os.environ, "RPM_URL": url, "RPM_KEY": "key", "RPM_SECRET": "secret"}
    listing = [sys.executable, "-m", "rpm_client", "list"]
    return {
        "list_cpu_ms": cpu_ms(listing, environment),
        "bare_cpu_ms": cpu_ms([sys.executable, "-c", "pass"], environment),
    }


def cpu_ms(command: list[str], environment: dict[str, str]) -> float:
    """The median processor time of a program."""
    spent = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    if "list" in command:
        assert len(done.stdout.splitlines()) == 50, done.stdout
    return statistics.median(spent) * 1000


if __name__ == "__main__":
    main()
