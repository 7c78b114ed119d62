"""The expected answers for each role, written by hand from what the documentation promises.

The first rule that matches a cell counts. A cell without a rule fails the build, and so does a rule
without a cell. A new address therefore needs a line here before it can be merged: name the roles
that may use it and what the others are answered. Never copy an actual answer.

Patterns are those of a shell (`*` is any text). `/api/v1/pools/<pk>/*` is the address and all that
lies below it.
"""

from fnmatch import fnmatchcase
from functools import cache

from tests.authorisation.cells import Cell
from tests.authorisation.rules.builders import Rule
from tests.authorisation.rules.pages import CARDS, OPEN, PAGES_INSTALLATION, PAGES_OWN, PAGES_WORK
from tests.authorisation.rules.rest import (
    REST_ACCESS,
    REST_ACCOUNT,
    REST_INSTALLATION,
    REST_POLICIES,
    REST_TASKS,
    REST_VAULTS,
)
from tests.authorisation.rules.site import SITE

RULES: tuple[Rule, ...] = (
    *OPEN,
    *REST_INSTALLATION,
    *REST_ACCOUNT,
    *REST_ACCESS,
    *REST_POLICIES,
    *REST_TASKS,
    *REST_VAULTS,
    *CARDS,
    *SITE,
    *PAGES_INSTALLATION,
    *PAGES_OWN,
    *PAGES_WORK,
)


def rule_for(cell: Cell) -> Rule | None:
    """The first matching rule."""
    return next((one for one in _rules_at(cell.surface.address) if one.fits(cell)), None)


@cache
def _rules_at(address: str) -> tuple[Rule, ...]:
    return tuple(
        one for one in RULES if any(fnmatchcase(address, pattern) for pattern in one.patterns)
    )
