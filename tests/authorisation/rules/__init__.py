"""Who is answered what: written by hand, from what the documentation promises.

The first rule that fits a cell counts; a cell that none fits fails the build, and so does a rule
that fits none. A new address therefore needs a line here before it can be merged: say who may ask
and what the others are told. Never write down what you see it answer.

Patterns are those of a shell (`*` is any text). `/api/v1/pools/<pk>/*` is the address and all that
lies below it.
"""

from fnmatch import fnmatchcase
from functools import cache

from tests.authorisation.cells import Cell
from tests.authorisation.rules.pages import CARDS, OPEN, PAGES_HOUSE, PAGES_OWN, PAGES_WORK
from tests.authorisation.rules.rest import (
    REST_ACCESS,
    REST_HOUSE,
    REST_ONESELF,
    REST_POLICIES,
    REST_TASKS,
    REST_VAULTS,
)
from tests.authorisation.rules.shaping import Rule
from tests.authorisation.rules.site import SITE

RULES: tuple[Rule, ...] = (
    *OPEN,
    *REST_HOUSE,
    *REST_ONESELF,
    *REST_ACCESS,
    *REST_POLICIES,
    *REST_TASKS,
    *REST_VAULTS,
    *CARDS,
    *SITE,
    *PAGES_HOUSE,
    *PAGES_OWN,
    *PAGES_WORK,
)


def rule_for(cell: Cell) -> Rule | None:
    """The first rule that fits."""
    return next((one for one in _rules_at(cell.surface.address) if one.fits(cell)), None)


@cache
def _rules_at(address: str) -> tuple[Rule, ...]:
    return tuple(
        one for one in RULES if any(fnmatchcase(address, pattern) for pattern in one.patterns)
    )
