"""`rpmctl group members`: the people and service accounts of a group."""

from typing import Annotated

import typer

from rpm_client.cli.access import client_of
from rpm_client.cli.nouns import NOUNS, Name, object_path
from rpm_client.cli.output import Json, say, say_json, table

app = typer.Typer(no_args_is_help=True, help="Members of a group, service accounts included.")
Users = Annotated[list[str], typer.Argument(metavar="USER...", help="User names or ids.")]


@app.command("list")
def list_members(context: typer.Context, name: Name, *, as_json: Json = False) -> None:
    """All members of a group."""
    client = client_of(context)
    found = list(client.objects(f"{object_path(client, NOUNS['group'], name)}members"))
    if as_json:
        say_json(found)
    else:
        table(("id", "username", "email", "status"), found)


@app.command()
def add(context: typer.Context, name: Name, users: Users, *, as_json: Json = False) -> None:
    """Add people to a group."""
    _change(context, name, users, "members/", as_json=as_json)


@app.command()
def remove(context: typer.Context, name: Name, users: Users, *, as_json: Json = False) -> None:
    """Remove people from a group; their tasks stay where they are."""
    _change(context, name, users, "members/remove/", as_json=as_json)


def _change(
    context: typer.Context, name: str, users: list[str], path: str, *, as_json: bool
) -> None:
    client = client_of(context)
    address = f"{object_path(client, NOUNS['group'], name)}{path}"
    group = client.object_do("POST", address, {"users": users})
    if as_json:
        say_json(group)
    else:
        say(f"{group['name']} has {group['members']} members.")
