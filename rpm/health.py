"""Whether this installation works, for probes and for people."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.contrib.staticfiles import finders
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from apps.accounts.selectors import is_admin
from apps.allocation.explaining import SUSPENDED
from apps.allocation.models import PassState
from apps.nodes.models import Installation, Node, NodeState
from apps.nodes.selectors import nodes_unsettled, served_by_pool
from apps.policies.models import LiveState, Pool
from rpm.env import is_open
from rpm.static_files import STYLES, static_problem

# Beat rings every few seconds; so many rings missed in a row mean that nobody listens.
RINGS_MISSED = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `advice` says what mends it."""

    name: str
    is_fine: bool
    words: str
    advice: str = ""


def healthz(_request: HttpRequest) -> HttpResponse:
    """This process answers."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """Database, broker, and the age of the last pass; 503 while one of them is not fine.

    Only a signed-in administrator reads which; `manage.py doctor` says it on the server.
    """
    findings = [_asked(name, check) for name, check in READY.items()]
    is_ready = all(finding.is_fine for finding in findings)
    body: dict[str, Any] = {"ready": is_ready}
    if _is_from_administrator(request):
        body["checks"] = {finding.name: finding.words for finding in findings}
    response = JsonResponse(body, status=200 if is_ready else 503)
    if not is_ready:
        response["Retry-After"] = "5"
    return response


def _is_from_administrator(request: HttpRequest) -> bool:
    try:
        return is_admin(request.user)
    except DatabaseError:
        return False


def examine() -> list[Finding]:
    """Everything that `manage.py doctor` looks at; without a database only that."""
    database = check_database()
    if not database.is_fine:
        return [database]
    return [_asked(name, check) for name, check in {**READY, **OTHERS}.items()]


def _asked(name: str, check: Callable[[], Finding]) -> Finding:
    """What a check found; that the database does not tell it is a finding too."""
    try:
        return check()
    except DatabaseError as error:
        advice = f"{_one_line(error)} Run manage.py migrate."
        return Finding(name, is_fine=False, words="the database does not tell", advice=advice)


def check_database() -> Finding:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        # Names of servers and accounts stay out of the words, which /readyz shows.
        mends = "Check DATABASE_URL, and that the server runs and lets this account in."
        advice = f"{_one_line(error)} {mends}"
        return Finding("database", is_fine=False, words="no answer", advice=advice)
    return Finding("database", is_fine=True, words=f"{connection.vendor} answers")


def check_broker() -> Finding:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=2)
    try:
        client.ping()
    except redis.RedisError as error:
        return Finding(
            "broker",
            is_fine=False,
            words="Redis does not answer",
            advice=f"{_one_line(error)} Work goes on more slowly. Start Redis or check REDIS_URL.",
        )
    finally:
        client.close()
    return Finding("broker", is_fine=True, words="Redis answers")


def check_pass() -> Finding:
    installation = Installation.objects.get(id=1)
    if installation.restored_at is not None:
        return _suspended(installation)
    last = PassState.objects.values_list("last_at", flat=True).filter(id=1).first()
    advice = "Start a worker with beat (`manage.py up`), or `manage.py serve_passes`."
    if last is None:
        return Finding("pass", is_fine=False, words="no pass was ever made", advice=advice)
    age = timezone.now() - last
    words = f"the last pass was {age.total_seconds():.0f} s ago"
    is_fine = age < timedelta(seconds=RINGS_MISSED * settings.PASS_EVERY_S)
    return Finding("pass", is_fine=is_fine, words=words, advice="" if is_fine else advice)


def _suspended(installation: Installation) -> Finding:
    """No worker is to blame for passes that wait until a restored database is confirmed."""
    nodes = ", ".join(nodes_unsettled().values_list("name", flat=True)[:10])
    words = f"{SUSPENDED.sentence} Nodes with work that it does not know: {nodes or 'none seen'}."
    advice = SUSPENDED.help
    if installation.restore_confirmed_at is not None:
        words = f"Confirmed after a restore. Passes go on once these have answered: {nodes}."
        advice = "Start the workers, look at these nodes; one that is gone is declared powered off."
    return Finding("pass", is_fine=False, words=words, advice=advice)


def check_migrations() -> Finding:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        words = f"{len(missing)} migrations are missing"
        return Finding("migrations", is_fine=False, words=words, advice="Run manage.py migrate.")
    return Finding("migrations", is_fine=True, words="the database is up to date")


def check_assets() -> Finding:
    words = static_problem()
    if not words:
        return Finding("assets", is_fine=True, words="the pages' styles and scripts are served")
    is_built = finders.find(STYLES) is not None
    advice = "Run manage.py upgrade, then restart web." if is_built else "Run make assets."
    return Finding("assets", is_fine=False, words=words, advice=advice)


def check_home() -> Finding:
    files = [settings.HOME.path]
    if connection.vendor == "sqlite":
        files.append(Path(str(connection.settings_dict["NAME"])))
    readable = " ".join(str(one) for one in files if is_open(one))
    if readable:
        words = f"other accounts of this machine may read {readable}"
        advice = f"Run chmod go= {readable} as the owner."
        return Finding("home", is_fine=False, words=words, advice=advice)
    return Finding("home", is_fine=True, words=f"{files[0]} is closed to other accounts")


def check_switch() -> Finding:
    is_on = LiveState.objects.values_list("is_enabled", flat=True).get(id=1)
    words = f"resource management is {'on' if is_on else 'off: nothing is admitted'}"
    return Finding("switch", is_fine=is_on, words=words, advice="" if is_on else "Switch it on.")


def check_nodes() -> Finding:
    nodes = Node.objects.filter(removed_at__isnull=True)
    # What an administrator has declared switched off is no news.
    silent = nodes.filter(off_at=None).exclude(state=NodeState.HEALTHY)
    if silent:
        words = "; ".join(
            f"{name} is {state}: {detail}"
            for name, state, detail in silent.values_list("name", "state", "state_detail")[:10]
        )
        advice = "Run manage.py node check NAME."
        if silent.filter(state=NodeState.REFUSED).exists():
            advice += " Where a node shows another key than it did: manage.py node rekey NAME."
        return Finding("nodes", is_fine=False, words=words, advice=advice)
    unfit = nodes.filter(off_at=None, preflight_failures__gt=0)
    if unfit:
        words = "; ".join(
            f"{node.name} cannot start tasks"
            f"{', and is drained until it can' if node.is_draining else ''}: "
            f"{node.preflight_detail}"
            for node in unfit[:10]
        )
        advice = "Run manage.py node check NAME, which names the command that helps."
        return Finding("nodes", is_fine=False, words=words, advice=advice)
    forged = list(nodes.filter(serial_refused_at__isnull=False).values_list("name", flat=True)[:10])
    if forged:
        words = f"{', '.join(forged)} reported a serial that this installation did not sign"
        advice = "Look for changes on the node, then run rpmctl node dismiss-serial NAME."
        return Finding("nodes", is_fine=False, words=words, advice=advice)
    off, going = nodes.exclude(off_at=None).count(), nodes.filter(is_draining=True).count()
    words = f"{nodes.count() - off} nodes, all healthy"
    words += f"; {off} declared switched off" if off else ""
    words += f"; {going} draining" if going else ""
    return Finding("nodes", is_fine=True, words=words)


def check_pools() -> Finding:
    served = Node.objects.filter(removed_at__isnull=True, pool__isnull=False).values("pool_id")
    idle = Pool.objects.filter(removed_at__isnull=True).exclude(pk__in=served)
    names = list(idle.values_list("name", flat=True)[:10])
    if names:
        words = f"nobody serves {', '.join(names)}"
        return Finding("pools", is_fine=False, words=words, advice="Run manage.py node add.")
    live = list(Pool.objects.filter(removed_at__isnull=True))
    has = served_by_pool(live)
    drift = [
        f"{pool.name}: {' '.join(one.sentence for one in has[pool.pk].differences)}"
        for pool in live
        if has[pool.pk].differences
    ]
    if drift:
        advice = "Mend the nodes, or provision what there is."
        return Finding("pools", is_fine=False, words=" ".join(drift[:10]), advice=advice)
    return Finding("pools", is_fine=True, words="every pool has the nodes that are configured")


def _one_line(error: Exception) -> str:
    """The sentence of a driver, with one full stop."""
    return f"{' '.join(str(error).split()).rstrip('.')}."


READY: dict[str, Callable[[], Finding]] = {
    "database": check_database,
    "broker": check_broker,
    "pass": check_pass,
}
OTHERS: dict[str, Callable[[], Finding]] = {
    "migrations": check_migrations,
    "assets": check_assets,
    "home": check_home,
    "switch": check_switch,
    "nodes": check_nodes,
    "pools": check_pools,
}
