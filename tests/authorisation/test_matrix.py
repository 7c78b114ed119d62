"""Every request, by every role about everybody's objects, is answered as the rules say."""

from pathlib import Path

import pytest
import yaml

from tests.authorisation.cells import Cell, cells_of
from tests.authorisation.findings import findings
from tests.authorisation.requester import Requester
from tests.authorisation.roles import ROLES, Role
from tests.authorisation.rules import RULES, rule_for
from tests.authorisation.surfaces import METHODS, Surface, surfaces
from tests.authorisation.world import World

pytestmark = pytest.mark.django_db

REST = "/api/v1/"
# They show the schema itself, or that there is nothing.
NOT_IN_SCHEMA = {f"{REST}schema/", f"{REST}docs/", REST}
MOST_RULES, LEAST_CELLS = 200, 3000


def cells(world: World) -> list[Cell]:
    return [cell for role in ROLES for one in surfaces() for cell in cells_of(world, role, one)]


def test_every_cell_has_a_rule_and_every_rule_a_cell(requester: Requester) -> None:
    found = [(cell, rule_for(cell)) for cell in cells(requester.world)]

    bare = sorted({str(cell.surface) for cell, rule in found if rule is None})
    used = {id(rule) for _, rule in found}
    idle = [rule for rule in RULES if id(rule) not in used]
    assert bare == [], "say in tests/authorisation/rules.py who may ask here"
    assert idle == [], "these rules are for nothing"
    assert len(RULES) <= MOST_RULES
    assert len(found) >= LEAST_CELLS


def test_whatever_rest_documents_is_asked_for_and_the_other_way_round() -> None:
    schema = yaml.safe_load(Path("docs/openapi.yaml").read_text(encoding="utf-8"))
    documented = {
        (path.count("{"), method.upper(), _shape(path))
        for path, operations in schema["paths"].items()
        for method in operations
        if method.upper() in METHODS
    }
    asked = {
        (len(one.holes), one.method, _shape(one.address))
        for one in surfaces()
        if one.address.startswith(REST) and one.address not in NOT_IN_SCHEMA
    }

    assert asked == documented


def _shape(address: str) -> str:
    """An address whose holes have no names."""
    return "/".join("…" if part[:1] in {"{", "<"} else part for part in address.split("/"))


@pytest.mark.parametrize("role", ROLES, ids=str)
@pytest.mark.parametrize("part", ["rest", "admin", "pages"])
def test_everybody_is_answered_as_the_rules_say(
    requester: Requester, role: Role, part: str
) -> None:
    wrong = list(findings(requester, role, _part(part)))

    assert wrong == []


def _part(part: str) -> list[Surface]:
    known = {"rest": REST, "admin": "/admin/"}
    rest = [one for one in surfaces() if one.method != "WATCH"]
    if part in known:
        return [one for one in rest if one.address.startswith(known[part])]
    return [one for one in rest if not one.address.startswith(tuple(known.values()))]
