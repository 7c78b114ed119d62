"""A migrated PostgreSQL database, made once per run: every process of tests copies it.

Copying takes a tenth of a second. Migrating takes many, most of them for the states of the models
between the migrations.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection
from django.db.backends.base.creation import BaseDatabaseCreation
from psycopg import sql

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = "rpm_migrated"
_BUILDING = "rpm_migrating"
# Of this file alone among the advisory locks of the server.
_LOCK = 731_001


class MigrationFailed(Exception):
    """`manage.py migrate` ended with an error; the message holds its last words."""


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None,
) -> Iterator[None]:
    """Let pytest-django copy the migrated database instead of migrating an empty one."""
    if connection.vendor != "postgresql":
        yield
        return
    template_ensure(os.environ["DATABASE_URL"])
    connection.settings_dict["TEST"]["TEMPLATE"] = TEMPLATE
    with mock.patch.object(BaseDatabaseCreation, "create_test_db", _copy):
        yield


def _copy(
    creation: Any, *, verbosity: int, autoclobber: bool, keepdb: bool, serialize: bool
) -> str:
    """What Django does to make a test database, without the migrations."""
    # It asks for the serialized content apart.
    assert not serialize
    name: str = creation._get_test_db_name()
    creation._create_test_db(verbosity, autoclobber, keepdb)
    creation.connection.close()
    creation.connection.settings_dict["NAME"] = name
    creation.connection.ensure_connection()
    return name


def template_ensure(cluster: str) -> None:
    """Make the template on this server unless another process of the run has.

    Args:
        cluster: the address of any database on the server.

    Raises:
        MigrationFailed: with what the command wrote.
    """
    server = cluster.rpartition("/")[0]
    with psycopg.connect(f"{server}/postgres", autocommit=True) as session:
        session.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        known = session.execute("SELECT 1 FROM pg_database WHERE datname = %s", [TEMPLATE])
        if known.fetchone():
            return
        names = sql.Identifier(_BUILDING), sql.Identifier(TEMPLATE)
        session.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(names[0]))
        session.execute(sql.SQL("CREATE DATABASE {}").format(names[0]))
        _migrate(f"{server}/{_BUILDING}")
        session.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(*names))


def _migrate(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity=0"],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise MigrationFailed(done.stderr[-2000:])
