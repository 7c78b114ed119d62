"""pytest plugin: surroundings of the tests, made before Django reads its settings.

Starts a private Redis and, with RPM_TEST_DATABASE=postgres, a private PostgreSQL; without it the
tests use SQLite in memory. Variables of the caller that would change what RPM does are removed.
With RPM_TEST_REPORT=FILE the counts of the run are written there for tools/test.py.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import pytest
from _pytest.terminal import TerminalReporter
from xdist.remote import Producer

from tests.services.distribution import SharedScheduling
from tests.services.postgres import running_postgres
from tests.services.redis import running_redis

KEPT = ("RPM_TEST_DATABASE", "RPM_TEST_REPORT", "RPM_TEST_STRICT")
CATEGORIES = ("failed", "error", "passed", "skipped", "xfailed", "xpassed")
# Signals to end that come so close together are one request.
ONE_REQUEST_S = 2.0
DATABASE_FIXTURES = frozenset({"db", "transactional_db", "live_server"})
# What SQLite can do otherwise than PostgreSQL (locks, triggers, statements written for each, files
# and backups), and a file of each app besides.
ON_SQLITE = (
    "tests/accounts/test_people.py",
    "tests/allocation/test_applier.py",
    "tests/allocation/test_loader",
    "tests/allocation/test_pass.py",
    "tests/allocation/test_preemption_races.py",
    "tests/authorisation/test_sockets.py",
    "tests/configuration/test_provision.py",
    "tests/configuration/test_races.py",
    "tests/core/",
    "tests/dashboard/test_pages.py",
    "tests/events/test_chain.py",
    "tests/execution/node_server/",
    "tests/identity/test_rate_limits.py",
    "tests/nodes/test_capacity.py",
    "tests/policies/test_registries.py",
    "tests/rpm/backups/",
    "tests/rpm/test_health.py",
    "tests/tasks/api/test_fast_path.py",
    "tests/tasks/api/test_fast_path_fields.py",
    "tests/tasks/services/test_bulk.py",
    "tests/tasks/services/test_storage.py",
    "tests/tasks/services/test_task_groups.py",
    "tests/tasks/test_ledger.py",
    "tests/tasks/test_queue_order.py",
    "tests/vaults/test_services.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SharedScheduling:
    """How a parallel run shares the tests out."""
    return SharedScheduling(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    """Make the surroundings; a wrapper runs before pytest-django loads the settings."""
    services = ExitStack()
    early_config.add_cleanup(services.close)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)
        _clear_environment()
        # Parallel workers share the cluster; pytest-django gives each a database of its own.
        if os.environ.get("RPM_TEST_DATABASE") == "postgres":
            os.environ["DATABASE_URL"] = services.enter_context(running_postgres()).url()
    # Channels of Redis know no database numbers: each process has its own server.
    os.environ["REDIS_URL"] = services.enter_context(running_redis()).url()
    # No existing installation is read or written.
    home = services.enter_context(TemporaryDirectory(prefix="rpm-test-home-"))
    os.environ["RPM_HOME"] = home
    return (yield)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file for `-m sqlite` that has no test for it."""
    if config.option.markexpr != "sqlite":
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    is_chosen = any(path.startswith(one) or one.startswith(f"{path}/") for one in ON_SQLITE)
    return None if is_chosen or path in {".", "tests"} else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what touches the database, and of that what SQLite's turn chooses."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if item.get_closest_marker("django_db") or DATABASE_FIXTURES.intersection(fixtures):
            item.add_marker(pytest.mark.database)
        if item.get_closest_marker("database") and item.nodeid.startswith(ON_SQLITE):
            item.add_marker(pytest.mark.sqlite)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Leave counts and reasons of skipped tests for the program that runs several suites."""
    path = os.environ.get("RPM_TEST_REPORT")
    if path is None:
        return
    stats = terminalreporter.stats
    counts = {name: len(stats.get(name, ())) for name in CATEGORIES}
    reasons = Counter(_reason(report) for report in stats.get("skipped", ()))
    Path(path).write_text(json.dumps({"counts": counts, "skipped": reasons}))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped; pytest keeps (file, line, reason) in its report."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


def _clear_environment() -> None:
    for name in list(os.environ):
        if name.startswith("RPM_") and name not in KEPT:
            del os.environ[name]
    for name in ("DATABASE_URL", "DATABASE_URL_FILE", "REDIS_URL", "REDIS_URL_FILE"):
        os.environ.pop(name, None)


_ended: list[float] = []


def _end(number: int, frame: FrameType | None) -> None:
    """Turn a request to end into the interrupt that lets pytest stop its services.

    Ctrl-C comes twice, from the terminal and from tools/test.py: the second of the two would cut
    the clean-up short. A later signal ends the tests at once.
    """
    last, now = (_ended or [-ONE_REQUEST_S])[-1], time.monotonic()
    _ended.append(now)
    if now - last > ONE_REQUEST_S:
        raise KeyboardInterrupt
