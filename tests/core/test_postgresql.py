"""A database that accepts data and never answers blocks no process for ever."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import DataError, OperationalError, connection, transaction

from apps.allocation.models import PassState
from apps.core.postgresql.base import DatabaseWrapper
from rpm import env
from tests.services.ports import stop, wait_until
from tests.services.silent_proxy import SilentProxy, silent_proxy
from tests.services.timeouts import scale_timeout

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

ROOT = Path(__file__).resolve().parents[2]
ASK = "from django.db import connection as c; c.ensure_connection(); "
ASK += "print(c.connection.execute('SHOW statement_timeout').fetchone()[0])"


@pytest.fixture
def proxy() -> Iterator[SilentProxy]:
    with silent_proxy(int(connection.settings_dict["PORT"])) as made:
        yield made


def url_through(port: int | str) -> str:
    at = connection.settings_dict
    return f"postgresql://{at['USER']}:{at['PASSWORD']}@127.0.0.1:{port}/{at['NAME']}"


def through(proxy: SilentProxy, **options: Any) -> DatabaseWrapper:
    """Django's connection by way of the proxy, with the settings of this one."""
    own = env.database(url_through(proxy.port), statement_s=5)
    own["OPTIONS"] |= {"silent_most_s": scale_timeout(1), **options}
    return DatabaseWrapper(connection.settings_dict | own, alias="through_proxy")


def test_a_transaction_that_was_silent_for_too_long_has_lost_its_connection() -> None:
    """A process that was stopped for a while goes on in such a one; it is no error of its own."""
    wrapper = DatabaseWrapper(connection.settings_dict, alias="silent")
    with closing(wrapper), wrapper.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = 50")
        cursor.execute("BEGIN")
        own = wrapper.connection.info.backend_pid
        with connection.cursor() as other:

            def is_gone() -> bool:
                other.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [own])
                return other.fetchone() is None

            wait_until(is_gone, what="the end of the silent connection")

        with pytest.raises(OperationalError, match="idle-in-transaction"):
            cursor.execute("SELECT 1")


@pytest.mark.parametrize("options", [{}, {"pool": {"min_size": 1, "max_size": 2}}], ids=str)
def test_a_statement_without_an_answer_fails_and_the_next_has_a_connection(
    proxy: SilentProxy, options: dict[str, Any]
) -> None:
    wrapper = through(proxy, **options)
    wrapper.settings_dict |= {"CONN_MAX_AGE": 0 if options else None}
    with wrapper.cursor() as cursor:
        cursor.execute("SELECT 1")
    proxy.silence()

    with pytest.raises(OperationalError, match="has not answered for"), wrapper.cursor() as cursor:
        cursor.execute("SELECT 1")
    wrapper.close_if_unusable_or_obsolete()

    with wrapper.cursor() as cursor:
        cursor.execute("SELECT 2")
        assert cursor.fetchone() == (2,)
    wrapper.close()
    wrapper.close_pool()


def test_the_server_ends_what_takes_too_long_and_what_does_nothing(proxy: SilentProxy) -> None:
    with closing(through(proxy, silent_most_s=None)) as wrapper, wrapper.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("5min",)
        cursor.execute("SET statement_timeout = '200ms'")
        with pytest.raises(OperationalError, match="statement timeout"):
            cursor.execute("SELECT pg_sleep(600)")


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param(["manage.py", "shell", "--verbosity=0", "-c", ASK], "0", id="a command"),
        pytest.param(["-c", f"import rpm.wsgi; {ASK}"], "1min", id="what serves"),
    ],
)
def test_commands_such_as_migrate_may_take_their_time(command: list[str], want: str) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": url_through(connection.settings_dict["PORT"])},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == want


@pytest.mark.parametrize("seconds", [0, 5])
def test_no_statement_is_compiled(seconds: int) -> None:
    """One whose costs are guessed high took a second to compile and milliseconds to run."""
    own = env.database(url_through(connection.settings_dict["PORT"]), statement_s=seconds)
    wrapper = DatabaseWrapper(connection.settings_dict | own, alias="as_installed")
    with closing(wrapper), wrapper.cursor() as cursor:
        cursor.execute("SHOW jit")
        assert cursor.fetchone() == ("off",)


def test_a_process_that_makes_passes_goes_on_after_a_silence(proxy: SilentProxy) -> None:
    variables = {"DATABASE_URL": url_through(proxy.port), "RPM_STATEMENT_TIMEOUT_S": "5"}
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve_passes"],
        cwd=ROOT,
        env=os.environ | variables,
        stdout=subprocess.DEVNULL,
    )

    def passes() -> int:
        return PassState.objects.values_list("passes", flat=True).get()

    try:
        began = passes()
        wait_until(lambda: passes() > began, what="it makes passes", timeout_s=60)

        proxy.silence()
        before = passes()

        wait_until(lambda: passes() > before + 1, what="it makes passes again", timeout_s=60)
    finally:
        stop(process, signal=15)


def test_a_host_that_is_gone_is_noticed(proxy: SilentProxy) -> None:
    with closing(through(proxy)) as wrapper:
        wrapper.ensure_connection()
        assert isinstance(wrapper.connection, psycopg.Connection)
        found = wrapper.connection.info.get_parameters()

    assert found["connect_timeout"] == "10"
    assert found["tcp_user_timeout"] == "30000"
    assert found["keepalives_idle"] == "15"


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
@pytest.mark.parametrize("text", ["2026-03-01T12:00:00.120000+00:00", "0001-01-02T00:00:00+00:00"])
def test_moments_are_read_as_they_are_stored(text: str, zone: str) -> None:
    wanted = datetime.fromisoformat(text)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL TimeZone = %s", [zone])
        cursor.execute("SELECT %s::timestamptz, '2026-03-01 12:00'::timestamp", [wanted])

        assert cursor.fetchone() == (wanted, datetime(2026, 3, 1, 12))  # noqa: DTZ001  # it has no zone


def test_a_moment_that_python_does_not_have_is_a_fault_of_the_data() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 'infinity'::timestamptz")
        with pytest.raises(DataError, match="infinity"):
            cursor.fetchone()
