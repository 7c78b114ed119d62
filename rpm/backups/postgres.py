"""PostgreSQL by its own programs: pg_dump out, pg_restore and psql in, in one transaction."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from django.db import connection
from psycopg.conninfo import make_conninfo

from rpm import env
from rpm.backups.errors import BackupFailed

NAME = "database.dump"
# Where Debian, Ubuntu, Red Hat and Homebrew keep the versions side by side.
FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
)
# Options of Django's, not of libpq.
OURS = frozenset({"pool", "isolation_level", "server_side_binding", "assume_role", "silent_most_s"})
BLOCK_BYTES = 1024 * 1024
# Of programs newer than the server: a setting that it does not know.
UNKNOWN_SETTING = b"SET transaction_timeout = 0;\n"
EMPTY_THE_SCHEMA = """
SET lock_timeout = '10s';
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT oid::regclass AS name FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
    LOOP
        EXECUTE 'DROP TABLE IF EXISTS ' || found.name || ' CASCADE';
    END LOOP;
    FOR found IN SELECT oid::regclass AS name FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'S'
    LOOP
        EXECUTE 'DROP SEQUENCE IF EXISTS ' || found.name || ' CASCADE';
    END LOOP;
    FOR found IN SELECT oid::regprocedure AS name FROM pg_proc AS function
        WHERE pronamespace = current_schema()::regnamespace AND NOT EXISTS (
            SELECT 1 FROM pg_depend WHERE objid = function.oid AND deptype = 'e'
        )
    LOOP
        EXECUTE 'DROP ROUTINE IF EXISTS ' || found.name || ' CASCADE';
    END LOOP;
END
$$;
"""


def dump(folder: Path) -> str:
    """Write one consistent state of the database; the answer is the part's name."""
    program = _program("pg_dump")
    command = [program, "--format=custom", "--no-owner", "--no-privileges", "--no-password"]
    done = subprocess.run(
        [*command, f"--file={folder / NAME}", f"--dbname={_address()}"],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise BackupFailed(f"pg_dump failed: {_words(done.stderr)}")
    return NAME


def check_alone() -> None:
    """Raises BackupFailed while other sessions use the database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        others = cursor.fetchone()[0]
    if others:
        raise BackupFailed(
            f"{others} other sessions use the database: stop web, workers and beat first."
        )


def restore(folder: Path, *, afterwards: list[str]) -> None:
    """Put the dump in place of everything in the schema, and run the statements, or do nothing.

    Args:
        afterwards: SQL without parameters; the schema is in the search path.
    """
    reader = [_program("pg_restore"), "--no-owner", "--no-privileges", "--file=-"]
    writer = [_program("psql"), "--no-psqlrc", "--quiet", "--no-password", "--output=/dev/null"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        schema = connection.ops.quote_name(cursor.fetchone()[0])
    is_old_server = connection.pg_version < 170000  # type: ignore[attr-defined]  # of this backend
    address, environment = _address(), _environment()
    connection.close()
    with (
        (folder / "words").open("w+b") as words,
        subprocess.Popen(
            [*reader, str(folder / NAME)], stdout=subprocess.PIPE, stderr=words
        ) as read,
        subprocess.Popen(
            [*writer, "--set=ON_ERROR_STOP=1", f"--dbname={address}"],
            env=environment,
            stdin=subprocess.PIPE,
            stderr=words,
        ) as write,
    ):
        dumped, taker = cast(IO[bytes], read.stdout), cast(IO[bytes], write.stdin)
        is_whole = _send(taker, _script(dumped, is_old_server=is_old_server))
        if not is_whole:
            read.kill()
        if read.wait() == 0 and is_whole:
            end = [f"SET search_path = {schema}", *afterwards, "COMMIT"]
            is_whole = _send(taker, [f"{statement};\n".encode() for statement in end])
        # Without its COMMIT the server rolls everything back when the session ends.
        _close(taker)
        write.wait()
        words.seek(0)
        if not is_whole or read.returncode != 0 or write.returncode != 0:
            raise BackupFailed(f"The database is as it was before: {_words(words.read())}")


def _script(dumped: IO[bytes], *, is_old_server: bool) -> Iterator[bytes]:
    yield b"BEGIN;\n" + EMPTY_THE_SCHEMA.encode()
    first = dumped.read(BLOCK_BYTES)
    yield first.replace(UNKNOWN_SETTING, b"", 1) if is_old_server else first
    while block := dumped.read(BLOCK_BYTES):
        yield block


def _send(target: IO[bytes], blocks: "Iterator[bytes] | list[bytes]") -> bool:
    try:
        for block in blocks:
            target.write(block)
        target.flush()
    except BrokenPipeError:
        # psql ended at the first statement that failed, and has said which.
        return False
    return True


def _close(target: IO[bytes]) -> None:
    try:
        target.close()
    except BrokenPipeError:
        return


def _program(name: str) -> str:
    """The program of the server's version, else of the next newer one."""
    with connection.cursor():
        wanted = connection.pg_version // 10000  # type: ignore[attr-defined]  # of this backend
    found = {major: path for path in _candidates(name) if (major := _major(path)) >= wanted}
    if not found:
        raise BackupFailed(
            f"{name} of PostgreSQL {wanted} or newer is not on this machine: install the package "
            f"postgresql-client-{wanted} (Debian, Ubuntu), or name its folder in "
            "RPM_POSTGRES_PROGRAMS."
        )
    return found[min(found)]


def _candidates(name: str) -> list[str]:
    folder = env.text("RPM_POSTGRES_PROGRAMS")
    if folder:
        return [f"{folder}/{name}"]
    found = [str(path) for pattern in FOLDERS for path in Path("/").glob(f"{pattern[1:]}/{name}")]
    on_path = shutil.which(name)
    return [*found, on_path] if on_path else found


def _major(path: str) -> int:
    """The major version that the program prints; 0 where it does not run."""
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = re.search(r"\) (\d+)", output.stdout)
    return int(found[1]) if found else 0


def _address() -> str:
    """For programs, without the password: others on the machine can read their arguments."""
    settings = connection.settings_dict
    parts: dict[str, Any] = {
        "dbname": settings["NAME"],
        "user": settings["USER"],
        "host": settings["HOST"],
        "port": settings["PORT"],
    }
    options = {key: value for key, value in settings["OPTIONS"].items() if key not in OURS}
    options.pop("password", None)
    return make_conninfo(**{key: value for key, value in (parts | options).items() if value})


def _environment() -> dict[str, str]:
    password = connection.settings_dict["PASSWORD"]
    return {**os.environ, "PGPASSWORD": password} if password else dict(os.environ)


def _words(output: bytes) -> str:
    """The end of what a program said, as one sentence."""
    text = " ".join(output[-2000:].decode(errors="replace").split())
    return f"{text.rstrip('.')}." if text else "it did not say why."
