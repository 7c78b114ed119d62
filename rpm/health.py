"""Health checks, for probes and administrators."""

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
from apps.allocation.explanation import SUSPENDED
from apps.allocation.models import PassState
from apps.core import clock
from apps.nodes.models import Installation, Node, NodeState
from apps.nodes.selectors import capacity_by_pool, nodes_unsettled, serving_processes
from apps.policies.models import LiveState, Pool
from apps.usage.models import UsageRun
from apps.usage.selectors.bookings import BOOKED_WITHIN, unbooked_ends
from rpm.apps import unknown_migration
from rpm.env import is_open
from rpm.static_files import STYLES, static_problem

# Beat notifies every few seconds; so many missed passes in a row mean that no worker runs.
PASSES_MISSED = 6


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """The result of one check; `fix` says what to do."""

    name: str
    is_fine: bool
    words: str
    fix: str = ""


def healthz(_request: HttpRequest) -> HttpResponse:
    """This process answers."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """Database, broker, and the age of the last pass; 503 while one of them is not fine.

    Only a signed-in administrator reads which; `manage.py doctor` says it on the server.
    """
    findings = [_run_check(name, check) for name, check in READY.items()]
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


def examine() -> list[HealthFinding]:
    """Everything that `manage.py doctor` checks; without a database only that."""
    database = check_database()
    if not database.is_fine:
        return [database]
    return [_run_check(name, check) for name, check in {**READY, **OTHERS}.items()]


def _run_check(name: str, check: Callable[[], HealthFinding]) -> HealthFinding:
    """The result of a check; a database that does not answer is a finding too."""
    try:
        return check()
    except DatabaseError as error:
        fix = f"{_one_line(error)} Run manage.py migrate."
        return HealthFinding(name, is_fine=False, words="the database reports an error", fix=fix)


def check_database() -> HealthFinding:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        # Names of servers and accounts stay out of the words, which /readyz shows.
        how = "Check DATABASE_URL, and that the server runs and lets this account in."
        fix = f"{_one_line(error)} {how}"
        return HealthFinding("database", is_fine=False, words="no answer", fix=fix)
    return HealthFinding("database", is_fine=True, words=f"{connection.vendor} answers")


def check_broker() -> HealthFinding:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=2)
    try:
        client.ping()
    except redis.RedisError as error:
        return HealthFinding(
            "broker",
            is_fine=False,
            words="Redis does not answer",
            fix=f"{_one_line(error)} RPM works more slowly. Start Redis or check REDIS_URL.",
        )
    finally:
        client.close()
    return HealthFinding("broker", is_fine=True, words="Redis answers")


def check_pass() -> HealthFinding:
    installation = Installation.objects.get(id=1)
    if installation.restored_at is not None:
        return _suspended(installation)
    state = PassState.objects.filter(id=1).first() or PassState()
    now = timezone.now()
    words = "no pass was ever made"
    if state.last_at is not None:
        words = f"the last pass was {(now - state.last_at).total_seconds():.0f} s ago"
        if now - state.last_at < timedelta(seconds=PASSES_MISSED * settings.PASS_EVERY_S):
            return HealthFinding("pass", is_fine=True, words=words)
    fix = "Start a worker with beat (`manage.py up`), or `manage.py serve_passes`."
    if state.failed_at is not None and (state.last_at is None or state.last_at < state.failed_at):
        words += f"; a pass failed {(now - state.failed_at).total_seconds():.0f} s ago"
        fix = f"Read the log of the worker: {state.failure.rstrip('.')}. If none runs: {fix}"
    return HealthFinding("pass", is_fine=False, words=words, fix=fix)


def _suspended(installation: Installation) -> HealthFinding:
    """The finding while scheduling is suspended after a restore: no process is the cause."""
    nodes = ", ".join(nodes_unsettled().values_list("name", flat=True)[:10])
    words = f"{SUSPENDED.sentence} Nodes with work that it does not know: {nodes or 'none seen'}."
    fix = SUSPENDED.help
    if installation.restore_confirmed_at is not None:
        words = f"Confirmed after a restore. Passes go on once these have answered: {nodes}."
        fix = "Start `manage.py serve_nodes`, and check these nodes; declare one that is gone off."
    return HealthFinding("pass", is_fine=False, words=words, fix=fix)


def check_migrations() -> HealthFinding:
    if found := unknown_migration():
        return HealthFinding(
            "migrations",
            is_fine=False,
            words=f"the database has {found}, which this version does not know",
            fix="Install the version that made it, or restore a backup of this one.",
        )
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        words = f"{len(missing)} migrations are missing"
        return HealthFinding("migrations", is_fine=False, words=words, fix="Run manage.py migrate.")
    return HealthFinding("migrations", is_fine=True, words="the database is up to date")


def check_assets() -> HealthFinding:
    words = static_problem()
    if not words:
        return HealthFinding(
            "assets", is_fine=True, words="the pages' styles and scripts are served"
        )
    is_built = finders.find(STYLES) is not None
    fix = "Run manage.py upgrade, then restart web." if is_built else "Run make assets."
    return HealthFinding("assets", is_fine=False, words=words, fix=fix)


def check_home() -> HealthFinding:
    files = [settings.HOME.path]
    if connection.vendor == "sqlite":
        files.append(Path(str(connection.settings_dict["NAME"])))
    readable = " ".join(str(one) for one in files if is_open(one))
    if readable:
        words = f"other accounts of this machine may read {readable}"
        fix = f"Run chmod go= {readable} as the owner."
        return HealthFinding("home", is_fine=False, words=words, fix=fix)
    return HealthFinding("home", is_fine=True, words=f"{files[0]} is closed to other accounts")


def check_switch() -> HealthFinding:
    is_on = LiveState.objects.values_list("is_enabled", flat=True).get(id=1)
    words = f"resource management is {'on' if is_on else 'off: nothing is admitted'}"
    return HealthFinding("switch", is_fine=is_on, words=words, fix="" if is_on else "Switch it on.")


def check_nodes() -> HealthFinding:
    nodes = Node.objects.filter(removed_at__isnull=True)
    if nodes.exists() and not serving_processes():
        fix = "Start `manage.py serve_nodes`, which `manage.py up` does by itself."
        return HealthFinding("nodes", is_fine=False, words="no process serves the nodes", fix=fix)
    # A node that an administrator declared switched off needs no attention.
    silent = list(nodes.filter(off_at=None).exclude(state=NodeState.HEALTHY).order_by("name"))
    if silent:
        words = "; ".join(
            f"{node.name} is {node.state}: {node.state_detail}" for node in silent[:10]
        )
        fix = f"Run manage.py node check {silent[0].name}."
        if any(node.state == NodeState.REFUSED for node in silent):
            refused = next(node.name for node in silent if node.state == NodeState.REFUSED)
            fix += f" If it shows another host key: manage.py node rekey {refused}."
        return HealthFinding("nodes", is_fine=False, words=words, fix=fix)
    unfit = list(nodes.filter(off_at=None, preflight_failures__gt=0).order_by("name"))
    if unfit:
        words = "; ".join(
            f"{node.name} cannot start tasks"
            f"{', and is drained until it can' if node.is_draining else ''}: "
            f"{node.preflight_detail}"
            for node in unfit[:10]
        )
        fix = f"Run manage.py node check {unfit[0].name}, which names the command that helps."
        return HealthFinding("nodes", is_fine=False, words=words, fix=fix)
    forged = list(nodes.filter(serial_refused_at__isnull=False).values_list("name", flat=True)[:10])
    if forged:
        words = f"{', '.join(forged)} reported a serial that this installation did not sign"
        fix = f"Look for changes on the node, then run manage.py node dismiss-serial {forged[0]}."
        return HealthFinding("nodes", is_fine=False, words=words, fix=fix)
    off, going = nodes.exclude(off_at=None).count(), nodes.filter(is_draining=True).count()
    words = f"{nodes.count() - off} nodes, all healthy"
    words += f"; {off} declared switched off" if off else ""
    words += f"; {going} draining" if going else ""
    return HealthFinding("nodes", is_fine=True, words=words)


def check_usage() -> HealthFinding:
    """Booking that stopped keeps every ended task in the database, and watches no budget."""
    run = UsageRun.objects.filter(id=1).first()
    if run is not None and (age := clock.now() - run.at) > BOOKED_WITHIN:
        words = f"usage, budgets and idle tasks were last seen to {age.total_seconds():.0f} s ago"
        fix = "Check that beat and a worker run; see their logs. If a clock was set, restart them."
        return HealthFinding("usage", is_fine=False, words=words, fix=fix)
    late = unbooked_ends(clock.now() - BOOKED_WITHIN)
    if late:
        words = f"the sums of usage lack {late} attempts that have ended"
        fix = (
            "Check that beat and a worker run; see their logs. No ended task is removed until then."
        )
        return HealthFinding("usage", is_fine=False, words=words, fix=fix)
    return HealthFinding("usage", is_fine=True, words="every attempt that has ended is booked")


def check_pools() -> HealthFinding:
    pools_with_nodes = Node.objects.filter(removed_at__isnull=True, pool__isnull=False).values(
        "pool_id"
    )
    idle = Pool.objects.filter(removed_at__isnull=True).exclude(pk__in=pools_with_nodes)
    names = list(idle.values_list("name", flat=True)[:10])
    if names:
        words = f"no node serves {', '.join(names)}"
        return HealthFinding("pools", is_fine=False, words=words, fix="Run manage.py node add.")
    live = list(Pool.objects.filter(removed_at__isnull=True))
    has = capacity_by_pool(live)
    drift = [
        f"{pool.name}: {' '.join(one.sentence for one in has[pool.pk].differences)}"
        for pool in live
        if has[pool.pk].differences
    ]
    if drift:
        fix = "Fix the nodes, or provision what there is."
        return HealthFinding("pools", is_fine=False, words=" ".join(drift[:10]), fix=fix)
    return HealthFinding(
        "pools", is_fine=True, words="every pool has the nodes that are configured"
    )


def _one_line(error: Exception) -> str:
    """The sentence of a driver, with one full stop."""
    return f"{' '.join(str(error).split()).rstrip('.')}."


READY: dict[str, Callable[[], HealthFinding]] = {
    "database": check_database,
    "broker": check_broker,
    "pass": check_pass,
}
OTHERS: dict[str, Callable[[], HealthFinding]] = {
    "migrations": check_migrations,
    "assets": check_assets,
    "home": check_home,
    "switch": check_switch,
    "nodes": check_nodes,
    "pools": check_pools,
    "usage": check_usage,
}
