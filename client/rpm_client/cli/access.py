"""The server that a command connects to, and its credential."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rpm_client.client import Client


@dataclass(frozen=True)
class ServerAccess:
    """The address of the server and the credential."""

    url: str
    key: str
    secret: str
    token: str


def client_of(context: typer.Context) -> "Client":
    """The connection, made when a command needs it: `COMMAND --help` needs none."""
    access: ServerAccess = context.obj
    is_keyed = bool(access.key and access.secret)
    if not access.url:
        raise typer.BadParameter("Set RPM_URL, such as https://rpm.example.org.")
    if not access.token and not is_keyed:
        raise typer.BadParameter("Set RPM_KEY and RPM_SECRET, or RPM_TOKEN.")
    # With both, the secret: a token in the environment may be of yesterday.
    token = "" if is_keyed else access.token
    # HTTP takes long to import; no help text needs it.
    connect = import_module("rpm_client.client").Client
    client: Client = connect(access.url, key=access.key, secret=access.secret, token=token)
    return context.with_resource(client)
