"""The eight roles, and how an object is related to each of them."""

from dataclasses import dataclass
from enum import StrEnum

from tests.authorisation.world import INSTALLATION, OWNER, TENANTS


class Relation(StrEnum):
    """The relation of an object to the requester."""

    OWN = "own"  # made by them
    MATE = "mate"  # of another member of their team
    TEAM = "team"  # of their whole team
    BELOW = "below"  # of a team that they administer
    OTHER = "other"  # of another team
    FOREIGN = "foreign"  # of another tenant
    INSTALLATION = "installation"  # of the installation
    ABSENT = "absent"  # there is no such thing
    NOTHING = ""  # the address names no thing


@dataclass(frozen=True, slots=True)
class Role:
    """A user who sends requests: a person of the world, and where they belong.

    With `has_key` they sign in with a credential, as programs do, and have no session.
    """

    name: str
    person: str = ""
    place: str = ""
    owner: str = ""
    below: frozenset[str] = frozenset()
    has_key: bool = False

    def relation(self, place: str, owner: str) -> Relation:
        if place == INSTALLATION:
            return Relation.OWN if owner and owner == self.owner else Relation.INSTALLATION
        if place == self.place:
            return self._in_team(owner)
        if place in self.below:
            return Relation.BELOW
        is_near = not self.place or _tenant_of(place) == _tenant_of(self.place)
        return Relation.OTHER if is_near else Relation.FOREIGN

    def _in_team(self, owner: str) -> Relation:
        if not owner:
            return Relation.TEAM
        return Relation.OWN if owner == self.owner else Relation.MATE

    def __str__(self) -> str:
        return self.name


def _tenant_of(place: str) -> str:
    return next((top for top, teams in TENANTS.items() if place in (top, *teams)), "")


NOBODY = Role("nobody")
TEAM_A = Role("team-a", "a-owner", "a", OWNER)
TEAM_B = Role("team-b", "b-owner", "b", OWNER)
OTHER_TENANT = Role("other-tenant", "t-owner", "t", OWNER)
QUEUE_ADMIN = Role("queue-admin", "queues", owner="queues")
TENANT_ADMIN = Role("tenant-admin", "m-admin", "m", "admin", below=frozenset(TENANTS["m"]))
SERVICE = Role("service-account", "a-account", "a", "account", has_key=True)
ADMIN = Role("administrator", "root", owner="root")

ROLES = (NOBODY, TEAM_A, TEAM_B, OTHER_TENANT, QUEUE_ADMIN, TENANT_ADMIN, SERVICE, ADMIN)
