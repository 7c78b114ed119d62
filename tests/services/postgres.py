"""A private PostgreSQL cluster in a temporary folder, started and removed by the tests."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from tests.services import ports
from tools.packages import find_postgres_program

# Settings of a cluster whose content may be lost in a crash.
CARELESS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
COMMON = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "shared_buffers=256MB",
    # Small /dev/shm of containers is no limit then.
    "dynamic_shared_memory_type=mmap",
    "autovacuum_naptime=10s",
    "log_min_messages=warning",
)
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running PostgreSQL on loopback."""

    port: int
    password: str
    log: Path

    def url(self, name: str = "rpm") -> str:
        return f"postgresql://rpm:{self.password}@127.0.0.1:{self.port}/{name}"

    def create_database(self, name: str) -> str:
        """Make an empty database; the answer is its address."""
        self._run(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database and its open connections."""
        self._run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _run(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def is_ready(self) -> bool:
        """Whether it takes connections."""
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
            return True
        return False


@contextmanager
def running_postgres(*, durable: bool = False) -> Iterator[Cluster]:
    """Start a cluster of its own, with one empty database `rpm`.

    Args:
        durable: keep the server's promises to disk, as measurements of commits need it.

    Raises:
        ServerDidNotStart: with the end of the server's log.
    """
    folder = Path(tempfile.mkdtemp(prefix="rpm-test-postgres-"))
    account = _account()
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
    try:
        password = secrets.token_hex(16)
        _initdb(folder, password, account)
        process, cluster = _start(folder, password, account, durable=durable)
        try:
            cluster.create_database("rpm")
            yield cluster
        finally:
            # SIGINT: a fast shutdown that ends sessions first.
            ports.stop(process, signal=signal.SIGINT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account() -> pwd.struct_passwd | None:
    """Whose server it is: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _initdb(folder: Path, password: str, account: pwd.struct_passwd | None) -> None:
    password_file = folder / "password"
    password_file.write_text(password)
    if account is not None:
        os.chown(password_file, account.pw_uid, account.pw_gid)
    choices = (
        "--encoding=UTF8",
        "--no-locale",
        # Installations have a language: letters beyond ASCII have capitals there.
        "--lc-ctype=C.UTF-8",
        "--no-sync",
        "--auth=scram-sha-256",
        "--username=rpm",
    )
    done = _command(
        folder,
        account,
        [_program("initdb"), *choices, f"--pwfile={password_file}", str(folder / "data")],
    )
    if done.wait() != 0:
        raise ports.ServerDidNotStart(_end_of(folder / "log"))
    password_file.unlink()


def _start(
    folder: Path, password: str, account: pwd.struct_passwd | None, *, durable: bool
) -> tuple[subprocess.Popen[bytes], Cluster]:
    settings = COMMON if durable else (*COMMON, *CARELESS)
    options = [part for setting in settings for part in ("-c", setting)]
    for _ in range(ATTEMPTS):
        cluster = Cluster(port=ports.free_port(), password=password, log=folder / "log")
        process = _command(
            folder,
            account,
            [_program("postgres"), "-D", str(folder / "data"), "-p", str(cluster.port), *options],
        )
        try:
            ports.wait_for_server(process, cluster.is_ready, what="PostgreSQL")
        except ports.ServerDidNotStart:
            # Another process took the port meanwhile, or the server is broken: the log says which.
            ports.stop(process, signal=signal.SIGQUIT)
            continue
        return process, cluster
    raise ports.ServerDidNotStart(_end_of(folder / "log"))


def _command(
    folder: Path, account: pwd.struct_passwd | None, command: list[str]
) -> subprocess.Popen[bytes]:
    """Start a program of PostgreSQL under its account, writing into the folder's log."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={"PATH": os.defpath, "HOME": str(folder), "LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            # Ctrl-C reaches the tests, which then stop it in order.
            start_new_session=True,
            preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
        )


def _program(name: str) -> str:
    found = find_postgres_program(name)
    if found is None:
        raise ports.ServerDidNotStart(f"PostgreSQL's {name} is not on this machine")
    return found


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else "no log was written"
