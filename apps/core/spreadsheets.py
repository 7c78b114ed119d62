"""CSV that a spreadsheet shows as text, never as a formula."""

import csv
import io
from collections.abc import Iterable, Sequence
from decimal import Decimal

# What begins with one of these may be a formula, a call of a program, or a trick with lines.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def cell(value: object) -> str:
    """The text of one cell; an apostrophe in front makes a formula plain text. Numbers stay.

    A formula may follow invisible characters, which spreadsheets skip when they read.
    """
    if isinstance(value, int | float | Decimal):
        return str(value)
    text = "" if value is None else str(value).replace("\0", "")
    visible = text.lstrip(" \u00a0\ufeff\u200b")
    return f"'{text}" if visible.startswith(_FORMULAS) or text.startswith(_FORMULAS) else text


def csv_line(cells: Iterable[object] | Sequence[object]) -> str:
    """One line, quoted throughout, with its end."""
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow(map(cell, cells))
    return line.getvalue()
