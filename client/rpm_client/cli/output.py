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
    """Ask whether to go on; else the command ends, as without a terminal and an answer."""
    try:
        if typer.confirm(question, err=True):
            return
        complain("Nothing is done.")
    except typer.Abort:
        hint = "." if sys.stdin.isatty() else ": give --yes where nobody can answer."
        complain(f"\nNothing is done{hint}")
    raise typer.Exit(1)


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
    shown = import_module("rich.table").Table(box=None)
    text = import_module("rich.text").Text
    for column in columns:
        # Other commands take an id, and only a whole one.
        width = max((len(_cell(row.get(column))) for row in rows), default=0)
        least = width if column == "id" else None
        shown.add_column(column, overflow="fold", no_wrap=column == "id", min_width=least)
    for row in rows:
        shown.add_row(*(text(_terminal_cell(column, row)) for column in columns))
    import_module("rich.console").Console().print(shown)


def minute(at: str) -> str:
    """A time of the server, to the minute."""
    return f"{at[:16].replace('T', ' ')} UTC"


def _terminal_cell(column: str, row: dict[str, Any]) -> str:
    """As short as people need it: times to the minute, of an array its elements by state."""
    value = row.get(column)
    if column.endswith("_at") and isinstance(value, str):
        return value[:16].replace("T", " ")
    elements = _cell(row.get("array_counts")) if column == "state" else ""
    return f"{_cell(value)} ({elements})" if elements else _cell(value)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("name") or ", ".join(f"{each} {key}" for key, each in value.items())
    if isinstance(value, list):
        value = ", ".join(map(_cell, value))
    # One line, whatever the name of the task holds.
    return "" if value is None else " ".join(plain(str(value)).split())
