"""Reads every difference between places from the environment, strictly.

A value that cannot be understood stops the start with a sentence that names the variable.
`NAME_FILE` is read where `NAME` is absent, so that secrets can come as mounted files.
"""

import ipaddress
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from apps.core.weakness import secret_weakness

RANDOM = "python3 -c 'import secrets; print(secrets.token_urlsafe(48))' prints one."


class BadEnvironment(SystemExit):
    """A variable holds what this program cannot use; the message says which and why."""


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


def flag(name: str, *, default: bool) -> bool:
    """True or false; anything but the customary words is refused."""
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
class Home:
    """The folder that holds what an installation on one machine keeps."""

    path: Path

    def file(self, name: str) -> Path:
        return self.path / name

    def secret(self, name: str, variable: str) -> str:
        """The secret in `variable`, else the one kept in this folder, made at first start.

        The file is created with mode 0600 and never readable for others.
        """
        given = text(variable)
        if given:
            weakness = secret_weakness(given)
            if weakness:
                raise BadEnvironment(f"{variable} {weakness}. {RANDOM}")
            return given
        path = self.file(name)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return self._kept_secret(path, variable)
        made = secrets.token_urlsafe(48)
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(made)
        return made

    @staticmethod
    def _kept_secret(path: Path, variable: str) -> str:
        kept = path.read_text(encoding="utf-8").strip()
        weakness = secret_weakness(kept)
        if weakness:
            raise BadEnvironment(
                f"{path} holds no usable secret: it {weakness}. Delete it or set {variable}."
            )
        return kept


def home() -> Home:
    """`RPM_HOME` (default `~/.local/share/rpm-manager`), created with mode 0700."""
    path = Path(text("RPM_HOME") or Path.home() / ".local" / "share" / "rpm-manager")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadEnvironment(f"RPM_HOME={path} cannot be made: {error.strerror}.") from error
    return Home(path.resolve())


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


def database(url: str) -> dict[str, Any]:
    """Django's settings for one database address.

    Args:
        url: `postgresql://user:password@host:port/name?option=value` (a host that begins with
            a slash is a socket folder, given as `?host=/path`), or `sqlite:///path`.
    """
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": parts.path.removeprefix("/") if parts.path.startswith("//") else parts.path,
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
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", None) or parts.hostname or "",
        "PORT": str(options.pop("port", None) or parts.port or ""),
        "OPTIONS": options,
    }
