"""Requests with values that the user may not see: filters, searches, fields of bodies.

Whatever value is sent, a name of another user's object is answered like an unknown name. The lists
come from the REST schema, so that a new filter or field is tried automatically.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.authorisation.answers import Answer
from tests.authorisation.cells import NO_NUMBER, NO_UUID, Cell, address_of, cells_of
from tests.authorisation.findings import leaks, plain
from tests.authorisation.marks import Mark
from tests.authorisation.requester import Requester
from tests.authorisation.roles import Relation, Role
from tests.authorisation.rules import rule_for
from tests.authorisation.surfaces import Surface, surfaces
from tests.authorisation.visibility import may_know
from tests.authorisation.world import TENANTS, World

# The kind that a filter or field probably means, by a part of its name; else policies.
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
# Names are unique over the installation: a request for one that is taken is refused.
UNIQUE = {"name", "username", "email"}


@dataclass(frozen=True, slots=True)
class Blank:
    """A part of a request that takes a value: a parameter, or a field of the body."""

    surface: Surface
    name: str
    is_query: bool
    is_list: bool = False
    body: tuple[tuple[str, Any], ...] = ()


@cache
def blanks() -> tuple[Blank, ...]:
    """All parameters and fields, from the schema."""
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


def foreign_values(world: World, role: Role, name: str) -> Iterator[tuple[str, str]]:
    """Objects of others of the kind that this field names, by name and by number.

    Each comes with a similar value that no object has.
    """
    wanted = next((kind for word, kind in KINDS.items() if word in name), "policy")
    # Of teams first, whose people have tasks and vaults.
    rows = sorted(world.objects.items(), key=lambda one: one[0][1] in TENANTS)
    for (kind, place, owner), row in rows:
        is_foreign = role.relation(place, owner) is Relation.FOREIGN
        if kind == wanted and is_foreign and not may_know(role, Mark(kind, place, owner)):
            name = getattr(row, "username", None) or row.name
            # As long as the other, since messages may contain positions.
            yield name, f"mk-n-{'x' * (len(name) - 8)}-zq"
            yield str(row.pk), NO_UUID if "-" in str(row.pk) else str(NO_NUMBER)
            return


def cell_for(world: World, role: Role, surface: Surface) -> Cell | None:
    """A cell in which this role gets far enough for values to be checked."""
    for cell in cells_of(world, role, surface):
        rule = rule_for(cell)
        if (
            rule is not None
            and Answer.ALLOW in rule.answers
            and cell.relation is not Relation.ABSENT
        ):
            return cell
    return None


def value_findings(
    requester: Requester, role: Role, addresses: Sequence[str] = ()
) -> Iterator[str]:
    """What foreign values reveal, at these addresses or at all."""
    for blank in blanks():
        cell = cell_for(requester.world, role, blank.surface)
        if cell is None or (addresses and blank.surface.address not in addresses):
            continue
        for known, unknown in foreign_values(requester.world, role, blank.name):
            yield from _distinguishable(requester, cell, blank, known, unknown)


def _distinguishable(
    requester: Requester, cell: Cell, blank: Blank, known: str, unknown: str
) -> Iterator[str]:
    replies = [_with(requester, cell, blank, value) for value in (known, unknown)]
    texts = [plain(reply.text, known, unknown) for reply in replies]
    # Of two new things, each has numbers of its own.
    is_made = replies[0].status == MADE
    if replies[0].answer is Answer.BROKEN:
        yield f"{cell}: {blank.name}={known} breaks it"
    elif replies[0].status != replies[1].status or (not is_made and texts[0] != texts[1]):
        yield f"{cell}: {blank.name}={known} differs from {unknown}"
    yield from leaks(requester.world.marks, cell, replies[0].text, said=replies[0].said)


def _with(requester: Requester, cell: Cell, blank: Blank, value: str) -> Any:
    """The reply where `value` stands in the blank."""
    address, method = address_of(requester.world, cell), blank.surface.method
    if blank.is_query:
        sign = "&" if "?" in address else "?"
        return requester.send(cell.role, method, f"{address}{sign}{blank.name}={value}")
    body = {**dict(blank.body), blank.name: [value] if blank.is_list else value}
    return requester.send(cell.role, method, address, body)
