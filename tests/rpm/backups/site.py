"""Installations without processes of their own, and `manage.py` as an administrator runs it."""

import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

ROOT = Path(__file__).resolve().parents[3]
# Several commands in one process: starting each would be most of the time.
RUN = """
import io, json, sys
import django
django.setup()
from django.core.management import call_command
from django.core.management.base import CommandError
from apps.core.origin import origin_of_command
results = []
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    origin_of_command(words[0])
    try:
        call_command(*words, stdout=out)
    except CommandError as error:
        results.append([False, out.getvalue() + str(error)])
    else:
        results.append([True, out.getvalue()])
print("\\n" + json.dumps(results))
"""


@dataclass(frozen=True, slots=True)
class Site:
    """An installation at rest.

    Args:
        prefix: words before each command, such as a program that runs it with fewer rights.
    """

    home: Path
    url: str
    variables: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgresql://")

    def run(self, *commands: list[str], **variables: str) -> list[tuple[bool, str]]:
        """For each command whether it went well, and what it said."""
        own = {
            "RPM_HOME": str(self.home),
            "DATABASE_URL": self.url,
            "DJANGO_SETTINGS_MODULE": "rpm.settings",
        }
        ended = subprocess.run(
            [*self.prefix, sys.executable, "-c", RUN, json.dumps(commands)],
            cwd=ROOT,
            env=os.environ | own | self.variables | variables,
            input="correct-horse-battery\n",
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return [(is_fine, words) for is_fine, words in json.loads(ended.stdout.splitlines()[-1])]

    def done(self, *commands: list[str]) -> str:
        """What they said, all of which went well."""
        results = self.run(*commands)
        assert all(is_fine for is_fine, _ in results), results
        return "".join(words for _, words in results)

    def refused(self, *command: str) -> str:
        """Why the command was not carried out."""
        ((is_fine, words),) = self.run(list(command))
        assert not is_fine, words
        return words

    def ask(self, statement: str) -> list[Any]:
        """The first column."""
        with self.session() as session:
            return [row[0] for row in session.execute(statement).fetchall()]

    @contextmanager
    def session(self) -> Iterator[Any]:
        """Another session of the database; its changes are committed."""
        if self.is_postgres:
            with psycopg.connect(self.url) as session:
                yield session
            return
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as database:
            yield database
            database.commit()

    def add(self, name: str) -> None:
        """Add a user like the others."""
        with self.session() as session:
            cursor = session.execute("SELECT * FROM accounts_user WHERE username = 'alice'")
            columns = [column[0] for column in cursor.description if column[0] != "id"]
            values = [f"'{name}'" if column == "username" else column for column in columns]
            session.execute(
                f"INSERT INTO accounts_user ({', '.join(columns)}) "
                f"SELECT {', '.join(values)} FROM accounts_user WHERE username = 'alice'"
            )

    @property
    def people(self) -> list[str]:
        return self.ask("SELECT username FROM accounts_user ORDER BY username")


@contextmanager
def migrated(folder: Path) -> Iterator[Site]:
    """A site with alice in it, on the server that this run uses."""
    site = Site(folder / "home", f"sqlite:///{folder / 'rpm.sqlite3'}")
    site.home.mkdir(mode=0o700, parents=True)
    cluster = os.environ.get("DATABASE_URL", "")
    with _postgres_database(cluster) as url:
        site = Site(site.home, url or site.url)
        site.done(["migrate", "--verbosity=0"], ["person", "add", "alice", "--password-stdin"])
        yield site


@contextmanager
def copied(site: Site, folder: Path) -> Iterator[Site]:
    """The same once more, to be broken."""
    shutil.copytree(site.home, folder / "home")
    if not site.is_postgres:
        target = folder / "rpm.sqlite3"
        with (
            closing(sqlite3.connect(site.url.removeprefix("sqlite:///"))) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
        yield Site(folder / "home", f"sqlite:///{target}")
        return
    with _postgres_database(site.url, template=site.url.rsplit("/", 1)[1]) as url:
        yield Site(folder / "home", url)


@contextmanager
def _postgres_database(cluster: str, *, template: str = "template1") -> Iterator[str]:
    """A database of its own; empty text where this run uses SQLite."""
    if not cluster.startswith("postgresql://"):
        yield ""
        return
    server = cluster.rsplit("/", 1)[0]
    name = f"rpm_{secrets.token_hex(6)}"
    made = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(made.format(sql.Identifier(name), sql.Identifier(template)))
        yield f"{server}/{name}"
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
