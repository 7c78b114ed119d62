"""Asking with values that somebody may not see: filters, searches, fields of bodies.

Whatever is put in the place of a value, a name of somebody else's answers as a name that there is
not. The lists come from the REST schema, so that a new filter or field is asked for by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.authorisation.answers import Answer
from tests.authorisation.asking import Asker
from tests.authorisation.cells import NO_NUMBER, NO_UUID, Cell, address_of, cells_of
from tests.authorisation.judging import leaks, plain
from tests.authorisation.knowing import may_know
from tests.authorisation.marks import Mark
from tests.authorisation.roles import Role, Whose
from tests.authorisation.rules import rule_for
from tests.authorisation.surfaces import Surface, surfaces
from tests.authorisation.world import TENANTS, World

# What a filter or a field probably means, by a part of its name; else policies are named.
KINDS = {
    "queue": "queue",
    "group": "group",
    "profile": "profile",
    "pool": "pool",
    "other": "waiting",
    "vault": "team-vault",
    "owner": "person",
    "user": "person",
    "people": "person",
    "members": "person",
    "who": "person",
    "account": "account",
}
MADE = 201
# Names are unique over the installation: whoever wants one that is taken is told so.
UNIQUE = {"name", "username", "email"}


@dataclass(frozen=True, slots=True)
class Blank:
    """A place in a request where a value is put: a parameter, or a field of the body."""

    surface: Surface
    name: str
    is_query: bool
    is_list: bool = False
    body: tuple[tuple[str, Any], ...] = ()


@cache
def blanks() -> tuple[Blank, ...]:
    """All of them, from the schema."""
    schema = yaml.safe_load(Path("docs/openapi.yaml").read_text(encoding="utf-8"))
    by_shape = {(one.method, _shape(one.address)): one for one in surfaces()}
    found = []
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            surface = by_shape.get((method.upper(), _shape(path)))
            if surface is not None:
                found += [*_queries(surface, operation), *_fields(schema, surface, operation)]
    return tuple(found)


def _shape(address: str) -> str:
    return "/".join("…" if part[:1] in {"{", "<"} else part for part in address.split("/"))


def _queries(surface: Surface, operation: dict[str, Any]) -> Iterator[Blank]:
    for one in operation.get("parameters", ()):
        if one["in"] == "query":
            yield Blank(surface, one["name"], is_query=True)


def _fields(schema: dict[str, Any], surface: Surface, operation: dict[str, Any]) -> Iterator[Blank]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    known = schema["components"]["schemas"].get(name, {})
    needed = {one: _plain_value(known["properties"][one]) for one in known.get("required", ())}
    for field, kind in known.get("properties", {}).items():
        if field not in UNIQUE:
            body = {key: value for key, value in needed.items() if key != field}
            is_list = kind.get("type") == "array"
            yield Blank(surface, field, False, is_list, tuple(body.items()))


def _plain_value(kind: dict[str, Any]) -> Any:
    return {"array": [], "integer": 1, "boolean": False, "object": {}}.get(
        kind.get("type", ""), "x"
    )


def strange(world: World, role: Role, name: str) -> Iterator[tuple[str, str]]:
    """What somebody else has of the kind that this name asks for, by name and by number.

    Each comes with one like it that nobody has.
    """
    wanted = next((kind for word, kind in KINDS.items() if word in name), "policy")
    # Of teams first, whose people have tasks and vaults.
    rows = sorted(world.objects.items(), key=lambda one: one[0][1] in TENANTS)
    for (kind, place, owner), row in rows:
        is_foreign = role.whose(place, owner) is Whose.FOREIGN
        if kind == wanted and is_foreign and not may_know(role, Mark(kind, place, owner)):
            name = getattr(row, "username", None) or row.name
            # As long as the other, since sentences may say where a mistake stands.
            yield name, f"mk-n-{'x' * (len(name) - 8)}-zq"
            yield str(row.pk), NO_UUID if "-" in str(row.pk) else str(NO_NUMBER)
            return


def cell_for(world: World, role: Role, surface: Surface) -> Cell | None:
    """Where this role gets so far that values are looked at."""
    for cell in cells_of(world, role, surface):
        rule = rule_for(cell)
        if rule is not None and Answer.ALLOW in rule.answers and cell.whose is not Whose.ABSENT:
            return cell
    return None


def value_findings(asker: Asker, role: Role, addresses: Sequence[str] = ()) -> Iterator[str]:
    """What strange values tell, at these addresses or at all."""
    for blank in blanks():
        cell = cell_for(asker.world, role, blank.surface)
        if cell is None or (addresses and blank.surface.address not in addresses):
            continue
        for known, unknown in strange(asker.world, role, blank.name):
            yield from _told_apart(asker, cell, blank, known, unknown)


def _told_apart(asker: Asker, cell: Cell, blank: Blank, known: str, unknown: str) -> Iterator[str]:
    replies = [_with(asker, cell, blank, value) for value in (known, unknown)]
    texts = [plain(reply.text, known, unknown) for reply in replies]
    # Of two new things, each has numbers of its own.
    is_made = replies[0].status == MADE
    if replies[0].answer is Answer.BROKEN:
        yield f"{cell}: {blank.name}={known} breaks it"
    elif replies[0].status != replies[1].status or (not is_made and texts[0] != texts[1]):
        yield f"{cell}: {blank.name}={known} is told apart from {unknown}"
    yield from leaks(asker.world.marks, cell, replies[0].text, said=replies[0].said)


def _with(asker: Asker, cell: Cell, blank: Blank, value: str) -> Any:
    """The reply where `value` stands in the blank."""
    address, method = address_of(asker.world, cell), blank.surface.method
    if blank.is_query:
        sign = "&" if "?" in address else "?"
        return asker.send(cell.role, method, f"{address}{sign}{blank.name}={value}")
    body = {**dict(blank.body), blank.name: [value] if blank.is_list else value}
    return asker.send(cell.role, method, address, body)
