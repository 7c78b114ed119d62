"""One installation for `pages.py`, which starts this in a process of its own.

Prints one JSON line: milliseconds of the overview and of a page with nothing on it, and the
queries of both, with few policies and tasks and with many.
"""

import json
import statistics
import time

import django

django.setup()

from django.conf import settings  # noqa: E402  # needs the settings
from django.contrib.auth.models import Group  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

import rpm.wsgi  # noqa: E402, F401  # as a server's process loads it
from apps.accounts.models import User  # noqa: E402
from apps.accounts.models.users import ADMINS  # noqa: E402
from apps.allocation.services import run_pass  # noqa: E402
from apps.dashboard.cards.overview import MOST_POLICIES  # noqa: E402
from apps.policies.models import Policy  # noqa: E402
from apps.tasks.models import Task  # noqa: E402
from tests.bench.passes_installation import configure, insert_waiting, settle  # noqa: E402

FEW, MANY = 5, 200
PROFILES = 5
POOLS = 10
WAITING = 100_000
ROUNDS = 20
OVERVIEW, EMPTY = "/", "/credentials/"


def main() -> None:
    settings.ALLOWED_HOSTS = ["*"]
    call_command("migrate", verbosity=0)
    admin = User.objects.create_user("admin")
    admin.groups.add(Group.objects.get(name=ADMINS))
    client = Client()
    client.force_login(admin)
    configure(pools=POOLS, profiles=PROFILES, policies=FEW)
    found: dict[str, float] = {"few": queries(client, OVERVIEW)}
    # What is there already differs by its name only: the rest is added to it.
    rename_all()
    configure(pools=POOLS, profiles=PROFILES, policies=MANY - FEW)
    insert_waiting(admin.pk, 5_000)
    run_pass()
    insert_waiting(admin.pk, WAITING - Task.objects.count())
    settle()
    shown = client.get(OVERVIEW).content.decode()
    assert f"has {MANY - MOST_POLICIES} more" in shown, "policies miss"
    rounds = [(timed(client, OVERVIEW), timed(client, EMPTY)) for _ in range(ROUNDS + 1)][1:]
    found |= {
        "many": queries(client, OVERVIEW),
        "policies": Policy.objects.count(),
        "tasks": Task.objects.count(),
        "overview_ms": statistics.median(one for one, _ in rounds) * 1000,
        "empty_ms": statistics.median(one for _, one in rounds) * 1000,
    }
    print(json.dumps(found), flush=True)  # noqa: T201  # the other process reads it


def rename_all() -> None:
    """Free the names that a second configuration takes."""
    for table in ("policies_pool", "policies_profile", "policies_policy", "policies_queue"):
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {table} SET name = 'first-' || replace(name, ' ', '-')")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE auth_group SET name = 'first-' || name WHERE name = 'team'")
        cursor.execute("UPDATE nodes_node SET name = 'first-' || name")


def timed(client: Client, path: str) -> float:
    """Seconds to the whole answer."""
    began = time.perf_counter()
    assert client.get(path).status_code == 200
    return time.perf_counter() - began


def queries(client: Client, path: str) -> int:
    """How many of them the page takes."""
    client.get(path)
    with CaptureQueriesContext(connection) as captured:
        assert client.get(path).status_code == 200
    return len(captured)


if __name__ == "__main__":
    main()
