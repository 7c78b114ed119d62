"""Objects of administrators: one set of commands for every noun of REST, from one table."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from rpm_client.cli.access import client_of
from rpm_client.cli.output import Json, Yes, confirm, say, say_json, table
from rpm_client.cli.submit import of_file
from rpm_client.cli.task_options import pair
from rpm_client.cli.yaml_text import yaml_value

if TYPE_CHECKING:
    from rpm_client.client import Client


@dataclass(frozen=True)
class Noun:
    """A kind of object: its path in REST, what a list shows, and what can be done with one."""

    path: str
    columns: tuple[str, ...]
    is_made: bool = True
    is_changed: bool = True
    is_deleted: bool = True
    verbs: tuple[str, ...] = ()
    name: str = "name"


NOUNS = {
    "pool": Noun(
        "pools",
        ("id", "name", "capacity", "is_paused"),
        is_made=False,
        is_changed=False,
        is_deleted=False,
        verbs=("pause", "resume"),
    ),
    "profile": Noun(
        "profiles",
        ("id", "name", "request"),
        is_made=False,
        is_changed=False,
        is_deleted=False,
    ),
    "policy": Noun(
        "policies",
        ("id", "name", "reserved", "limit", "is_paused"),
        verbs=("pause", "resume"),
    ),
    "queue": Noun(
        "queues",
        ("id", "name", "policy", "profile", "is_paused"),
        is_made=False,
        verbs=("pause", "resume"),
    ),
    "group": Noun("groups", ("id", "name")),
    "person": Noun(
        "users",
        ("id", "username", "email", "status"),
        is_deleted=False,
        verbs=("activate", "deactivate"),
        name="username",
    ),
    "volume": Noun("volumes", ("id", "name")),
    "vault": Noun("vaults", ("id", "name")),
    "tenant": Noun("tenants", ("id", "name")),
}
HELP = {
    "person": "People",
    "policy": "Policies",
}
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")]
Fields = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="FIELD=VALUE...",
        help="Fields of REST; values in YAML: limit=4, limit.gpu=4, users=[ada].",
    ),
]
File = Annotated[
    Optional[str], typer.Option("--file", "-f", help="Fields in YAML or JSON; - is the input.")
]


def noun_app(word: str, noun: Noun) -> typer.Typer:
    """The commands of a noun, as far as REST has them."""
    app = typer.Typer(no_args_is_help=True, help=f"{HELP.get(word, word.capitalize() + 's')}.")
    app.command("list", help=f"All that you may see: {', '.join(noun.columns)}.")(_list(noun))
    app.command("show", help="All fields of one.")(_show(noun))
    if noun.is_made:
        app.command("create", help="Make one of these fields; prints its id.")(_create(noun))
    if noun.is_changed:
        app.command("set", help="Change these fields of one, and no others.")(_set(noun))
    if noun.is_deleted:
        app.command("delete", help="Delete one, after a question.")(_delete(noun))
    for verb in noun.verbs:
        app.command(verb, help=f"{verb.capitalize()} one.")(_verb(noun, verb))
    return app


def _list(noun: Noun) -> Any:
    def list_all(
        context: typer.Context,
        *,
        columns: Annotated[str, typer.Option("--output", "-o", help="Fields, by commas.")] = "",
        as_json: Json = False,
    ) -> None:
        found = list(client_of(context).objects(noun.path))
        if as_json:
            say_json(found)
        else:
            table(tuple(columns.split(",")) if columns else noun.columns, found)

    return list_all


def _show(noun: Noun) -> Any:
    def show(context: typer.Context, name: Name) -> None:
        client = client_of(context)
        say_json(client.object_get(object_path(client, noun, name))[0])

    return show


def _create(noun: Noun) -> Any:
    def create(
        context: typer.Context, fields: Fields = None, *, file: File = None, as_json: Json = False
    ) -> None:
        made = client_of(context).object_do("POST", f"{noun.path}/", _fields(fields, file))
        if as_json:
            say_json(made)
        else:
            say(str(made["id"]))

    return create


def _set(noun: Noun) -> Any:
    def change(
        context: typer.Context,
        name: Name,
        fields: Fields = None,
        *,
        file: File = None,
        as_json: Json = False,
    ) -> None:
        client = client_of(context)
        path = object_path(client, noun, name)
        # The version that was read: a change of another user meanwhile is not overwritten.
        current, etag = client.object_get(path)
        changes = _fields(fields, file, current=current)
        found = client.object_do("PATCH", path, changes, etag=etag)
        if as_json:
            say_json(found)
        else:
            say(f"{name} is changed: {', '.join(changes)}.")

    return change


def _delete(noun: Noun) -> Any:
    def delete(context: typer.Context, name: Name, *, is_sure: Yes = False) -> None:
        client = client_of(context)
        path = object_path(client, noun, name)
        _, etag = client.object_get(path)
        if not is_sure:
            confirm(f"Delete {name}?")
        client.object_do("DELETE", path, None, etag=etag)
        say(f"{name} is deleted.")

    return delete


def _verb(noun: Noun, verb: str) -> Any:
    def do(
        context: typer.Context,
        name: Name,
        *,
        reason: Annotated[str, typer.Option(help="Why, for those who ask.")] = "",
        as_json: Json = False,
    ) -> None:
        client = client_of(context)
        values = {"reason": reason} if reason else {}
        found = client.object_do("POST", f"{object_path(client, noun, name)}{verb}/", values)
        if as_json:
            say_json(found)
        else:
            say(f"{name}: {verb} is done.")

    return do


def object_path(client: "Client", noun: Noun, name: str) -> str:
    """The address of the object of this name or id; names count first.

    Raises:
        BadParameter: there is none, or several have this name, such as vaults of several owners.
    """
    rows = list(client.objects(noun.path))
    for wanted in (noun.name, "id"):
        ids = [str(row["id"]) for row in rows if str(row[wanted]).lower() == name.lower()]
        if len(ids) > 1:
            raise typer.BadParameter(
                f"{len(ids)} of {noun.path} are {name!r}: give one of their ids, {', '.join(ids)}."
            )
        if ids:
            return f"{noun.path}/{ids[0]}/"
    known = ", ".join(str(row[noun.name]) for row in rows[:10]) or "none"
    raise typer.BadParameter(f"There is no {name!r} among {noun.path}. Known: {known}.")


def _fields(
    words: Optional[list[str]], file: Optional[str], *, current: Optional[dict[str, Any]] = None
) -> dict[str, Any]:
    """Fields from a file and from FIELD=VALUE.

    A dot leads into an object, of which the rest stays as it is.
    """
    fields = of_file(file) if file else {}
    for word in words or []:
        name, text = pair(word, "FIELD")
        try:
            value = yaml_value(text) if text else ""
        except ValueError:
            raise typer.BadParameter(f"{word!r}: the value is not YAML.") from None
        *outer, last = name.split(".")
        inside = fields
        now: Any = current or {}
        for part in outer:
            now = now.get(part) if isinstance(now, dict) else None
            inside = inside.setdefault(part, dict(now) if isinstance(now, dict) else {})
            if not isinstance(inside, dict):
                raise typer.BadParameter(f"{word!r}: {part} is no object.")
        inside[last] = value
    if not fields:
        raise typer.BadParameter("Give fields, such as limit=4.")
    return fields
