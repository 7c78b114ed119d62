"""Builders of rules."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.authorisation.answers import Answer
from tests.authorisation.cells import Cell
from tests.authorisation.roles import (
    ADMIN,
    NOBODY,
    OTHER_TENANT,
    QUEUE_ADMIN,
    ROLES,
    SERVICE,
    TEAM_A,
    TEAM_B,
    TENANT_ADMIN,
    Relation,
    Role,
)

ALLOW, FORBID, HIDE = Answer.ALLOW, Answer.FORBID, Answer.HIDE
SIGN_IN, GONE, METHOD = Answer.SIGN_IN, Answer.GONE, Answer.METHOD
OWN, MATE, TEAM, BELOW = Relation.OWN, Relation.MATE, Relation.TEAM, Relation.BELOW
OTHER, FOREIGN, INSTALLATION, ABSENT = (
    Relation.OTHER,
    Relation.FOREIGN,
    Relation.INSTALLATION,
    Relation.ABSENT,
)

ALL = frozenset(ROLES)
SIGNED = ALL - {NOBODY}
ADMINS = frozenset({ADMIN})
QUEUES = frozenset({QUEUE_ADMIN, ADMIN})
MEMBERS = frozenset({TEAM_A, TEAM_B, OTHER_TENANT, SERVICE})
# They administer what is below the top of their tenant.
TENANT = frozenset({TENANT_ADMIN})
# Nobody else has a session: pages do not know credentials.
PAGELESS = frozenset({NOBODY, SERVICE})

Answers = tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """Requests of these roles about such objects are answered with one of `answers`."""

    patterns: tuple[str, ...]
    methods: frozenset[str]
    roles: frozenset[Role]
    answers: Answers
    relation: frozenset[Relation]
    kinds: frozenset[str]

    def fits(self, cell: Cell) -> bool:
        """Whether it matches this cell."""
        return (
            cell.role in self.roles
            and (not self.methods or cell.surface.method in self.methods)
            and (not self.relation or cell.relation in self.relation)
            and (not self.kinds or cell.kind in self.kinds)
        )


def rule(
    where: str,
    roles: Iterable[Role],
    *answers: Answer,
    method: str = "",
    relation: Iterable[Relation] = (),
    kind: str = "",
) -> Rule:
    """`where`, `method` and `kind` take several by spaces; omitted ones match everything."""
    return Rule(
        tuple(where.split()),
        frozenset(method.split()),
        frozenset(roles),
        answers,
        frozenset(relation),
        frozenset(kind.split()),
    )


def section(*parts: Rule | tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(one for part in parts for one in ([part] if isinstance(part, Rule) else part))
