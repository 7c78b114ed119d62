"""How `rpmctl` prints what the server answered, without control sequences: users choose names."""

import json
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from rpm_client.terminal import plain

Json = Annotated[bool, typer.Option("--json", help="Print what REST answers.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def say(text: str) -> None:
    """Print a line of the response."""
    print(plain(text))


def complain(text: str) -> None:
    """Print a line for people, where the output of the command is for programs."""
    print(plain(text), file=sys.stderr)


def confirm(question: str) -> None:
    """Ask whether to go on; without an answer, such as without a terminal, the command ends."""
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        if not sys.stdin.isatty():
            complain("\nNothing is done: give --yes where nobody can answer.")
        raise


def say_json(value: Any) -> None:
    """Print a response as it is, indented."""
    print(json.dumps(value, indent=2))


def answer(found: dict[str, Any], field: str, *, as_json: bool) -> None:
    """Print what REST answered, or this field of it."""
    if as_json:
        say_json(found)
    else:
        say(str(found[field]))


def table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """A table on a terminal; plain tabs without the header for programs."""
    if not sys.stdout.isatty():
        for row in rows:
            say("\t".join(_cell(row.get(column)) for column in columns))
        return
    # Tables take long to import, and only terminals see them.
    shown = import_module("rich.table").Table(*columns, box=None)
    text = import_module("rich.text").Text
    for row in rows:
        shown.add_row(*(text(_cell(row.get(column))) for column in columns))
    import_module("rich.console").Console().print(shown)


def minute(at: str) -> str:
    """A time of the server, to the minute."""
    return f"{at[:16].replace('T', ' ')} UTC"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("name") or ", ".join(f"{each} {key}" for key, each in value.items())
    if isinstance(value, list):
        value = ", ".join(map(_cell, value))
    # One line, whatever the name of the task holds.
    return "" if value is None else " ".join(plain(str(value)).split())
