"""Reads the configuration of an installation from the environment, strictly.

An invalid value stops the start with an error that names the variable. `NAME_FILE` is read if
`NAME` is not set, so that secrets can be mounted files.
"""

import ipaddress
import os
import pwd
import secrets
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from apps.core.weakness import secret_weakness
from rpm.variables import misspelt_names

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# Of the systemd units.
SERVICE_ENV_FILE = "/etc/rpm/rpm.env"
RANDOM = "python3 -c 'import secrets; print(secrets.token_urlsafe(48))' prints one."


# By which a folder is known as an installation's.
OWN_FILES = frozenset({"secret-key", "credential-key", "key-ring", "rpm.sqlite3", "static"})


class BadEnvironment(SystemExit):
    """A variable holds an invalid value; the message says which and why."""


def text(name: str, default: str = "") -> str:
    """The value of `name`, or the content of the file that `name`_FILE points at."""
    value = os.environ.get(name)
    if value is not None:
        return value
    path = os.environ.get(f"{name}_FILE")
    if path is None:
        return default
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadEnvironment(f"{name}_FILE={path} cannot be read: {error.strerror}.") from error


def secret(name: str) -> str:
    """The secret in `name`, empty where none is set; one that is easy to guess is refused."""
    value = text(name)
    weakness = secret_weakness(value) if value else ""
    if weakness:
        raise BadEnvironment(f"{name} {weakness}. {RANDOM}")
    return value


def log_level() -> str:
    """From which level on lines are written."""
    value = text("RPM_LOG_LEVEL", "INFO").upper()
    if value not in LOG_LEVELS:
        raise BadEnvironment(
            f"RPM_LOG_LEVEL={value!r} is not known; use one of {', '.join(LOG_LEVELS)}."
        )
    return value


# A worker's blocking read takes a second at most; it reads again once that is overdue by
# `health_check_interval`. Sending a notification takes at most `socket_timeout`.
BROKER_OPTIONS = {
    "visibility_timeout": 120,
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 5,
}
# Servers with log handlers of their own: RPM's handlers replace them.
SERVER_LOGGERS: dict[str, Any] = {
    name: {"handlers": [], "propagate": True}
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "gunicorn.error", "gunicorn.access")
}


def channel_host(url: str) -> dict[str, Any]:
    """How Channels reaches Redis, with connections that notice when the other end is gone.

    redis-py 8 gives up on a socket that is quiet for 5 s; a listener may be quiet for days.
    """
    host = {"address": url, "socket_timeout": None, "socket_connect_timeout": 5}
    kept_alive = {} if url.startswith("unix:") else {"socket_keepalive": True}
    return {**host, **kept_alive, "max_connections": 1000}


def check_names() -> None:
    """Refuse to start with a misspelt variable: its value would have no effect."""
    for name, meant in misspelt_names(os.environ).items():
        raise BadEnvironment(f"{name} is not known; {meant} is. Rename or remove it.")


def flag(name: str, *, default: bool) -> bool:
    """True or false; any word but the usual ones is refused."""
    value = text(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise BadEnvironment(f"{name}={value!r} is neither yes nor no; use 1 or 0.")


def number(name: str, default: int, *, low: int, high: int) -> int:
    """A whole number from `low` to `high`."""
    value = text(name)
    if not value:
        return default
    try:
        parsed = int(value)
    except ValueError:
        raise BadEnvironment(f"{name}={value!r} is not a whole number.") from None
    if not low <= parsed <= high:
        raise BadEnvironment(f"{name}={parsed} must lie between {low} and {high}.")
    return parsed


def networks(name: str) -> list[str]:
    """A comma-separated list of addresses and networks, such as `127.0.0.1,10.0.0.0/8`."""
    given = words(name, [])
    for one in given:
        try:
            ipaddress.ip_network(one)
        except ValueError as error:
            raise BadEnvironment(f"{name}: {error}; give addresses or networks.") from error
    return given


def words(name: str, default: list[str]) -> list[str]:
    """A comma-separated list."""
    value = text(name)
    return [word.strip() for word in value.split(",") if word.strip()] if value else default


@dataclass(frozen=True, slots=True)
class InstallationFolder:
    """The folder that holds what an installation on one machine keeps."""

    path: Path

    def file(self, name: str) -> Path:
        return self.path / name

    def secret(self, name: str, variable: str) -> str:
        """The secret in `variable`, else the one kept in this folder, made at first start.

        The file is created with mode 0600 and never readable for others.
        """
        given = secret(variable)
        if given:
            return given
        path = self.file(name)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return self._stored_secret(path, variable)
        made = secrets.token_urlsafe(48)
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(made)
        return made

    @staticmethod
    def _stored_secret(path: Path, variable: str) -> str:
        stored = path.read_text(encoding="utf-8").strip()
        weakness = secret_weakness(stored)
        if weakness:
            raise BadEnvironment(
                f"{path} holds no usable secret: it {weakness}. Delete it or set {variable}."
            )
        return stored


def home() -> InstallationFolder:
    """`RPM_HOME` (default `~/.local/share/rpm-manager`), created with mode 0700."""
    _check_env_file()
    path = Path(text("RPM_HOME") or Path.home() / ".local" / "share" / "rpm-manager")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadEnvironment(f"RPM_HOME={path} cannot be made: {error.strerror}.") from error
    _close(path)
    return InstallationFolder(path.resolve())


def service_account() -> str:
    """The account of the systemd units; empty where this machine is not installed with them."""
    path = text("RPM_ENV_FILE", SERVICE_ENV_FILE)
    return account_name() if path and Path(path).is_file() else ""


def account_name() -> str:
    """The account under which this process runs."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        # Containers can run under a number without a name.
        return f"the account {os.geteuid()}"


def _close(path: Path) -> None:
    """Close the folder to other accounts: the keys in it allow acting as any user."""
    found = path.stat()
    if not found.st_mode & 0o077:
        return
    is_owned = os.geteuid() in {0, found.st_uid}
    there = {one.name for one in path.iterdir()}
    if is_owned and not found.st_mode & stat.S_ISVTX and (not there or there & OWN_FILES):
        path.chmod(0o700)
    elif found.st_mode & 0o007:
        raise BadEnvironment(
            f"RPM_HOME={path} is open to every account of this machine (mode "
            f"{stat.S_IMODE(found.st_mode):04o}). Name a folder for RPM alone, and run "
            f"chmod 700 {path} as its owner."
        )


def is_open(path: Path) -> bool:
    """Whether other accounts of this machine may read the file or folder by its mode."""
    return path.exists() and bool(path.stat().st_mode & 0o077)


def _close_file(path: Path) -> None:
    """SQLite gives its journal the mode of the database."""
    for one in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if is_open(one) and one.is_file() and os.geteuid() in {0, one.stat().st_uid}:
            one.chmod(0o600)


def _check_env_file() -> None:
    """Refuse to make a second installation next to the one whose variables were not loaded."""
    path = Path(text("RPM_ENV_FILE", SERVICE_ENV_FILE))
    is_loaded = bool(text("RPM_HOME") or text("DATABASE_URL"))
    if not is_loaded and path.is_file():
        raise BadEnvironment(
            f"{path} describes the installation of this machine and is not loaded: neither "
            "RPM_HOME nor DATABASE_URL is set. Use rpm-manage (docs/installing.md), which loads "
            "it, or set RPM_HOME for another installation."
        )


@dataclass(frozen=True, slots=True)
class Smtp:
    """The server that takes mail; an empty `host`: none. `security`: `starttls`, `tls`, `none`."""

    host: str
    port: int
    user: str
    password: str
    security: str
    sender: str


SMTP_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def smtp() -> Smtp:
    """`RPM_SMTP_HOST`, and with it `_PORT`, `_USER`, `_PASSWORD`, `_SECURITY` and `_FROM`."""
    security = text("RPM_SMTP_SECURITY", "starttls")
    if security not in SMTP_PORTS:
        raise BadEnvironment(
            f"RPM_SMTP_SECURITY={security!r} is not known; use starttls, tls or none."
        )
    found = Smtp(
        host=text("RPM_SMTP_HOST"),
        port=number("RPM_SMTP_PORT", SMTP_PORTS[security], low=1, high=65_535),
        user=text("RPM_SMTP_USER"),
        password=text("RPM_SMTP_PASSWORD"),
        security=security,
        sender=text("RPM_SMTP_FROM"),
    )
    if found.host and "@" not in found.sender:
        raise BadEnvironment("RPM_SMTP_FROM is missing: mail needs a sender, rpm@example.org.")
    if found.user and not found.password:
        raise BadEnvironment("RPM_SMTP_PASSWORD is missing for RPM_SMTP_USER.")
    return found


# What ends a connection to a server that is gone; libpq's names. Else a worker waits for hours.
PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# PostgreSQL compiles a statement whose costs it guesses high: a second for one of milliseconds.
NO_COMPILING = "-c jit=off"
# The server ends a transaction that is idle for this long: others wait for its locks.
IDLE_MOST_S = 300
# Commands of manage.py that run for as long as the installation does.
SERVING = (["serve_nodes"], ["serve_passes"], ["runserver"])
# Seconds that an answer may arrive after the end of its statement.
ANSWER_S = 15


def statement_timeout_s() -> int:
    """How long a statement may take; 0 is no bound, for commands such as `migrate`, `restore`."""
    seconds = number("RPM_STATEMENT_TIMEOUT_S", 60, low=5, high=3600)
    words = [Path(sys.argv[0]).name, *sys.argv[1:2]]
    is_command = words[0] == "manage.py" and words[1:] not in SERVING
    return 0 if is_command else seconds


def own_database(url: str) -> dict[str, Any]:
    """Django's settings for the database of this process."""
    return database(url, statement_s=statement_timeout_s())


def database(url: str, *, statement_s: int = 0) -> dict[str, Any]:
    """Django's settings for one database address.

    Args:
        statement_s: how long a statement may take in PostgreSQL; 0 is no bound.
        url: `postgresql://user:password@host:port/name?option=value` (a host that begins with
            a slash is a socket folder, given as `?host=/path`), or `sqlite:///path`.
    """
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        name = parts.path.removeprefix("/") if parts.path.startswith("//") else parts.path
        _close_file(Path(name))
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": name,
            "OPTIONS": {
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            },
        }
    if parts.scheme not in {"postgres", "postgresql"}:
        raise BadEnvironment(
            f"DATABASE_URL begins with {parts.scheme!r}; use postgresql:// or sqlite:///."
        )
    options: dict[str, Any] = PATIENCE | dict(parse_qsl(parts.query))
    choices = [NO_COMPILING]
    if statement_s:
        choices.append(f"-c statement_timeout={statement_s}s")
        choices.append(f"-c idle_in_transaction_session_timeout={IDLE_MOST_S}s")
        options["silent_most_s"] = statement_s + ANSWER_S
    options["options"] = " ".join([*choices, options.get("options", "")]).strip()
    return {
        "ENGINE": "apps.core.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", None) or parts.hostname or "",
        "PORT": str(options.pop("port", None) or parts.port or ""),
        "OPTIONS": options,
    }
