"""The surroundings of the tests are real, private and empty."""

import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import redis
from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from playwright.sync_api import Page

from tests.services import plugin, ports, timeouts
from tests.services.requirements import missing_programs, need


def test_redis_is_private_and_answers() -> None:
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        assert client.ping()
        assert client.config_get("save") == {"save": ""}


def test_data_of_an_installation_is_not_touched() -> None:
    assert Path(os.environ["RPM_HOME"]).name.startswith("rpm-test-home-")
    assert Path(settings.HOME.path) == Path(os.environ["RPM_HOME"]).resolve()


@pytest.mark.django_db
def test_the_database_is_the_one_that_was_asked_for() -> None:
    want = "postgresql" if os.environ.get("RPM_TEST_DATABASE") == "postgres" else "sqlite"

    assert connection.vendor == want


@pytest.mark.django_db
def test_the_database_has_every_migration_and_guard() -> None:
    executor = MigrationExecutor(connection)
    triggers = {
        "postgresql": "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal",
        "sqlite": "SELECT count(*) FROM sqlite_master WHERE type = 'trigger'",
    }

    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
    with connection.cursor() as cursor:
        cursor.execute(triggers[connection.vendor])
        assert cursor.fetchone()[0] > 5


@pytest.mark.parametrize(
    ("path", "chosen", "want"),
    [
        ("tests/core/test_clock.py", "sqlite", None),
        ("tests/allocation/test_loader_row_cache.py", "sqlite", None),
        ("tests/allocation", "sqlite", None),
        ("tests/allocation/engine", "sqlite", True),
        ("tests/accounts/test_groups.py", "sqlite", True),
        ("tests/accounts/test_groups.py", "", None),
    ],
)
def test_the_turn_of_sqlite_reads_its_own_files_only(
    path: str, chosen: str, want: bool | None, pytestconfig: pytest.Config
) -> None:
    config: Any = SimpleNamespace(
        option=SimpleNamespace(markexpr=chosen), rootpath=pytestconfig.rootpath
    )

    assert plugin.pytest_ignore_collect(pytestconfig.rootpath / path, config) is want


def test_a_process_gets_an_empty_database(database_url: str) -> None:
    if database_url.startswith("sqlite:"):
        assert not Path(database_url.removeprefix("sqlite:///")).exists()
        return
    with psycopg.connect(database_url) as own:
        query = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert own.execute(query).fetchone() == (0,)


def test_chromium_draws_a_page(page: Page) -> None:
    page.set_content("<h1>Ready</h1>")

    assert page.get_by_role("heading").inner_text() == "Ready"


def test_what_the_machine_lacks_is_skipped_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(need.__globals__["PROGRAMS"], "docker", ("no-such-program",))

    with pytest.raises(pytest.skip.Exception, match="needs docker: no-such-program not found"):
        need("docker")
    assert missing_programs("docker") == ["no-such-program"]


def test_a_suite_that_could_have_run_is_a_failure_in_a_strict_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RPM_TEST_STRICT", "1")
    monkeypatch.setitem(need.__globals__, "can_install", lambda: True)
    monkeypatch.setitem(need.__globals__["PROGRAMS"], "redis", ("no-such-program",))

    with pytest.raises(pytest.fail.Exception, match="this machine could have installed it"):
        need("redis")


def test_a_server_ends_with_tests_that_were_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from tests.services.redis import running_redis\n"
        "with running_redis() as server:\n"
        "    print(server.port, flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code]
    elsewhere = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=elsewhere, stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        port = int(tests.stdout.readline())
        assert ports.accepts(port)

        tests.kill()

    ports.wait_until(lambda: not ports.accepts(port), what="Redis gone")


def test_a_free_port_is_free() -> None:
    assert not ports.accepts(ports.free_port())


def test_a_port_that_another_process_has_is_not_this_servers() -> None:
    """The server of another test had taken it: nothing answered once that one had ended."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
            assert ports.accepts(port)
            assert not ports.listens(other, port)
            other.kill()

    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            ports.wait_until(partial(ports.listens, server, port), what="the server")
        finally:
            server.kill()

    assert not ports.listens(server, port)


def test_a_bound_grows_with_the_load_and_never_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    processors = len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    quiet = timeouts.scale_timeout(10)
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0 * processors, 0.0, 0.0))

    assert quiet >= 10
    assert 50 <= timeouts.scale_timeout(10) <= 10 * timeouts.MOST


def test_waiting_ends_with_a_sentence() -> None:
    with pytest.raises(TimeoutError, match="the moon: not within 0 s"):
        ports.wait_until(lambda: False, what="the moon", timeout_s=0.05)
