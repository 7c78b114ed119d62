"""The server that a command connects to, and its credential."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Optional

import typer

from rpm_client.cli.profiles import DEFAULT, ServerProfile, read_profiles

if TYPE_CHECKING:
    from rpm_client.client import Client


@dataclass(frozen=True)
class ServerAccess:
    """What options and the environment say, and the profile for what they leave open."""

    url: str
    key: str
    secret: str
    token: str
    profile: str


def resolve(access: ServerAccess) -> ServerProfile:
    """The server and one credential for it.

    Options and the environment come first. A stored credential goes to its own server only.

    Raises:
        BadParameter: something is missing.
    """
    is_keyed = bool(access.key and access.secret)
    stored = None if access.url and not access.profile else _stored(access.profile)
    url = access.url or (stored.url if stored else "")
    if not url:
        raise typer.BadParameter(
            "Run rpmctl login, or set RPM_URL, such as https://rpm.example.org."
        )
    # With both, the secret: a token in the environment may be of yesterday.
    if is_keyed:
        return ServerProfile(url, key=access.key, secret=access.secret)
    if access.token:
        return ServerProfile(url, token=access.token)
    found = stored or _of_server(url)
    if found and _same(found.url, url) and (found.token or (found.key and found.secret)):
        return found
    raise typer.BadParameter("Run rpmctl login, or set RPM_KEY and RPM_SECRET, or RPM_TOKEN.")


def client_of(context: typer.Context) -> "Client":
    """The connection, made when a command needs it: `COMMAND --help` needs none."""
    return context.with_resource(connect_to(resolve(context.obj)))


def connect_to(profile: ServerProfile) -> "Client":
    """A client; HTTP takes long to import, and no help text needs it."""
    connect = import_module("rpm_client.client").Client
    client: Client = connect(
        profile.url, key=profile.key, secret=profile.secret, token=profile.token
    )
    return client


def _stored(name: str) -> Optional[ServerProfile]:
    profiles = read_profiles()
    if name and name not in profiles:
        known = ", ".join(profiles) or "none"
        raise typer.BadParameter(
            f"There is no profile {name!r}: run rpmctl --profile {name} login. Known: {known}."
        )
    return profiles.get(name or DEFAULT)


def _of_server(url: str) -> Optional[ServerProfile]:
    return next((one for one in read_profiles().values() if _same(one.url, url)), None)


def _same(first: str, second: str) -> bool:
    return first.rstrip("/") == second.rstrip("/")
