"""Unmistakable names and numbers in answers.

Every text in the world is a marker, `mk-b-owner-draft-zq`, and every row has a number of eight
digits or a UUID that no other row of any table has. So an answer shows what it reveals: its reader
must be allowed to know each marker in it.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.db import connection
from django.db.models import BigAutoField, Model

MARKER = re.compile(r"mk-[a-z-]+?-zq")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Not a part of a word, of a fraction or of a UUID.
NUMBER = re.compile(r"(?<!\w)(?<!\d\.)7\d{7}(?![\w-])")
_FIRST = 70_000_000
_BLOCK = 100_000


@dataclass(frozen=True, slots=True)
class Mark:
    """What a marker or a number means: the kind of object, its place, and its owner."""

    kind: str
    place: str
    owner: str = ""


@dataclass(slots=True)
class Marks:
    """All markers of a world, by the text under which they appear in answers."""

    known: dict[str, Mark] = field(default_factory=dict)

    def name(self, kind: str, place: str, owner: str = "") -> str:
        """A new text for an object of this kind."""
        text = "-".join(part for part in ("mk", place, owner, kind, "zq") if part)
        self.known[text] = Mark(kind, place, owner)
        return text

    def row(self, row: Model, kind: str, place: str, owner: str = "") -> None:
        """Mark a row: its number reveals as much as its name."""
        self.known[str(row.pk)] = Mark(kind, place, owner)

    def found(self, text: str) -> dict[str, Mark]:
        """The marks in this text."""
        words = {*MARKER.findall(text), *UUID.findall(text), *NUMBER.findall(text)}
        return {word: self.known[word] for word in words if word in self.known}


@contextmanager
def numbers_kept() -> Iterator[None]:
    """Restore the numbering of tables afterwards: PostgreSQL does not roll it back."""
    if connection.vendor != "postgresql":
        yield
        return
    sequences = connection.introspection.sequence_list()
    names = [pair["name"] for pair in sequences]
    with connection.cursor() as cursor:
        before = []
        for name in names:
            cursor.execute(f"SELECT last_value, is_called FROM {connection.ops.quote_name(name)}")
            before.append((name, *cursor.fetchone()))
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.executemany("SELECT setval(%s, %s, %s)", before)


def number_distinctly(skip: Iterable[str] = ()) -> None:
    """Let each table count from its own number, so that numbers identify their rows."""
    models = [one for one in apps.get_models() if isinstance(one._meta.pk, BigAutoField)]
    models += [one for one in apps.get_models() if one._meta.label == "auth.Group"]
    for place, model in enumerate(sorted(models, key=lambda one: one._meta.label)):
        if model._meta.label not in skip:
            _count_from(model, _FIRST + place * _BLOCK)


def _count_from(model: Any, number: int) -> None:
    table, column = model._meta.db_table, model._meta.pk.column
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            question = "SELECT setval(pg_get_serial_sequence(%s, %s), %s)"
            cursor.execute(question, [f'"{table}"', column, number])
            return
        cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
        cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, number])
