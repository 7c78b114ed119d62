"""How `rpmctl` prints what the server answered, without control sequences: users choose names."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from apps.core.terminal import plain

out = Console()


def say(text: str) -> None:
    """Print a line of the response."""
    print(plain(text))


def table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """A table on a terminal; plain tabs without the header for programs."""
    if not out.is_terminal:
        for row in rows:
            say("\t".join(_cell(row.get(column)) for column in columns))
        return
    shown = Table(*columns, box=None)
    for row in rows:
        shown.add_row(*(Text(_cell(row.get(column))) for column in columns))
    out.print(shown)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("name", value)
    # One line, whatever the name of the task holds.
    return "" if value is None else " ".join(plain(str(value)).split())
