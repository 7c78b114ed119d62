"""Names and numbers that nothing else in an answer can be mistaken for.

Every text that is put into the world is a marker, `mk-b-owner-draft-zq`, and every row has a number
of eight digits or a UUID that no other row has, whichever table it is in. What an answer tells is
then read off it: each marker that stands there must be one that its reader may know.
"""

import re
from collections.abc import Iterable
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
_ROOM = 100_000


@dataclass(frozen=True, slots=True)
class Mark:
    """What a marker or a number stands for: a kind of thing, its place, and whose it is."""

    kind: str
    place: str
    owner: str = ""


@dataclass(slots=True)
class Marks:
    """All markers of a world, by the text under which they appear in answers."""

    known: dict[str, Mark] = field(default_factory=dict)

    def name(self, kind: str, place: str, owner: str = "") -> str:
        """A new text, to be stored where such a thing has one."""
        text = "-".join(part for part in ("mk", place, owner, kind, "zq") if part)
        self.known[text] = Mark(kind, place, owner)
        return text

    def row(self, row: Model, kind: str, place: str, owner: str = "") -> None:
        """The number of a row tells as much as its name."""
        self.known[str(row.pk)] = Mark(kind, place, owner)

    def found(self, text: str) -> dict[str, Mark]:
        """What this text names."""
        words = {*MARKER.findall(text), *UUID.findall(text), *NUMBER.findall(text)}
        return {word: self.known[word] for word in words if word in self.known}


def number_apart(skip: Iterable[str] = ()) -> None:
    """Let each table count from a number of its own on, so that numbers name their rows."""
    models = [one for one in apps.get_models() if isinstance(one._meta.pk, BigAutoField)]
    models += [one for one in apps.get_models() if one._meta.label == "auth.Group"]
    for place, model in enumerate(sorted(models, key=lambda one: one._meta.label)):
        if model._meta.label not in skip:
            _count_from(model, _FIRST + place * _ROOM)


def _count_from(model: Any, number: int) -> None:
    table, column = model._meta.db_table, model._meta.pk.column
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            question = "SELECT setval(pg_get_serial_sequence(%s, %s), %s)"
            cursor.execute(question, [f'"{table}"', column, number])
            return
        cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
        cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, number])
