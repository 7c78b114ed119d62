"""`rpmctl login`, `logout` and `whoami`."""

from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

import typer

from rpm_client.cli.access import ServerAccess, client_of, connect_to, resolve
from rpm_client.cli.output import Json, complain, say, say_json
from rpm_client.cli.profiles import DEFAULT, ServerProfile, read_profiles, write_profiles


def login(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="[URL]", help="Address of the server.")] = "",
    *,
    key: Annotated[str, typer.Option(help="Key of a credential; asks otherwise.")] = "",
    token: Annotated[str, typer.Option(help="In place of key and secret.")] = "",
    is_insecure: Annotated[
        bool, typer.Option("--insecure", help="Send the secret without encryption (http://).")
    ] = False,
) -> None:
    """Keep a server and a credential in a profile; asks for the secret.

    Make the credential on the page Credentials of your account. RPM_SECRET is used if it is set.
    """
    access: ServerAccess = context.obj
    name = access.profile or DEFAULT
    profiles = read_profiles()
    earlier = profiles.get(name)
    address = url or access.url or typer.prompt("Server", default=earlier.url if earlier else None)
    if not address.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{address} is no address: begin with https://.")
    if not (is_insecure or _is_private(address)):
        raise typer.BadParameter(
            f"{address} sends the secret without encryption: give https://, or --insecure."
        )
    # As for other commands: with both from the environment, the key and secret.
    if not (token or key or (access.key and access.secret)):
        token = access.token
    if token:
        profile = ServerProfile(address, token=token)
    else:
        key = key or access.key or typer.prompt("Key")
        secret = access.secret or typer.prompt("Secret", hide_input=True)
        profile = ServerProfile(address, key=key, secret=secret)
    with connect_to(profile) as client:
        account = client.account()
    path = write_profiles({**profiles, name: profile})
    say(f"{account['username']} at {address}, kept as {name} in {path}")


def _is_private(address: str) -> bool:
    """Whether nobody else can read what is sent there: encrypted, or to this machine itself."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        return parts.scheme == "https" or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def logout(context: typer.Context) -> None:
    """Remove a profile from this machine."""
    access: ServerAccess = context.obj
    name = access.profile or DEFAULT
    profiles = read_profiles()
    if name not in profiles:
        raise typer.BadParameter(f"There is no profile {name!r}: nothing is kept.")
    write_profiles({other: one for other, one in profiles.items() if other != name})
    say(f"{name} is removed.")
    complain(
        "The credential stays valid: revoke it on the page Credentials if you need it no more."
    )


def whoami(context: typer.Context, *, as_json: Json = False) -> None:
    """Your account, your groups, and the server."""
    account = client_of(context).account()
    url = resolve(context.obj).url
    if as_json:
        say_json({**account, "url": url})
        return
    groups = ", ".join(group["name"] for group in account["groups"]) or "none"
    say(f"{account['username']} at {url}")
    say(f"Groups: {groups}")
