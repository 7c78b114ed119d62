"""The server that a command connects to, and its credential."""

import re
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from rpm_client.cli.profiles import DEFAULT, ServerProfile, read_profiles

if TYPE_CHECKING:
    from rpm_client.client import Client


# The beginning of an id, as the server takes it: not all of its 36 characters.
BEGINNING = re.compile(r"[0-9a-f]{6,8}[0-9a-f-]{0,27}")
CONNECTION = "rpm_client.connection"
# Ids that begin the same and are shown.
MOST = 4


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
    """The connection, made once and when a command needs it: `COMMAND --help` needs none."""
    root = context.find_root()
    if CONNECTION not in root.meta:
        root.meta[CONNECTION] = root.with_resource(connect_to(resolve(context.obj)))
    client: Client = root.meta[CONNECTION]
    return client


def whole_id(context: typer.Context, given: str) -> str:
    """The id of a task, of which at least the first six characters are given.

    Raises:
        BadParameter: no task that the user sees begins so, or several do.
    """
    if not BEGINNING.fullmatch(given.lower()):
        # A whole one, or what the server refuses by name.
        return given
    found = [one["id"] for one in islice(client_of(context).tasks(id=given, limit=MOST), MOST)]
    if len(found) == 1:
        return str(found[0])
    if not found:
        raise typer.BadParameter(f"No task that you see has an id that begins with {given}.")
    more = ", ..." if len(found) == MOST else ""
    raise typer.BadParameter(f"Several ids begin with {given}: {', '.join(found)}{more}.")


def whole_ids(context: typer.Context, given: Any) -> Any:
    """The same for the argument of a command: one, several, or none."""
    if context.resilient_parsing or not given:
        return given
    if isinstance(given, str):
        return whole_id(context, given)
    # Of a dependency, with how the other task has to end.
    parts = [one.partition(":") for one in given]
    return [f"{whole_id(context, task)}{colon}{when}" for task, colon, when in parts]


TaskId = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="Its id, or the first characters: at least 6, and more where several match.",
        callback=whole_ids,
    ),
]


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
