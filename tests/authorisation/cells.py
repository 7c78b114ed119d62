"""The cells of the matrix: every surface, requested by every role, about objects of everybody."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.authorisation.roles import Relation, Role
from tests.authorisation.surfaces import Surface
from tests.authorisation.world import SHARED, TENANTS, World

TASKS = ("draft", "waiting", "running", "ended", SHARED)
NO_NUMBER, NO_NAME = 79_999_999, "mk-n-nothing-zq"
NO_UUID = "01a00000-0000-7000-8000-000000000000"

# The kinds of objects that an address is about; the first matching pattern counts.
ABOUT: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("/policies/<pk>/*", ("policy",)),
    ("/queues/<pk>/*", ("queue",)),
    ("/tasks/<pk>/*", TASKS),
    ("/nodes/<pk>/*", ("node",)),
    ("/credentials/<pk>/*", ("credential",)),
    ("/settings/notices/<pk>/*", ("notice-rule",)),
    ("/api/v1/notice-rules/<pk>/", ("notice-rule",)),
    ("/settings/people/groups/<pk>/*", ("group",)),
    ("/settings/people/<pk>/*", ("person", "guest")),
    ("/settings/service-accounts/<pk>/*", ("account",)),
    ("/settings/vaults/<pk>/*", ("vault", "team-vault")),
    ("/settings/identity/<slug>/*", ("provider",)),
    ("/settings/resources/pools/<pk>/*", ("pool",)),
    ("/settings/resources/history/<number>/*", ("revision",)),
    ("/settings/second-factor/keys/<pk>/*", ("second-factor",)),
    ("/settings/tenants/<pk>/*", ("tenant",)),
    ("/usage/rates/<pk>/*", ("rate",)),
    ("/api/v1/usage/rates/<pk>/", ("rate",)),
    ("/settings/access/rules/<key>/*", ("rule",)),
    ("/sign-in/with/<*", ("provider",)),
    ("/join/<token>/", ("invitation",)),
    ("/api/v1/access-rules/<key>/", ("rule",)),
    ("/api/v1/access/explain/", ("policy",)),
    ("/api/v1/audit/<pk>/", ("audit",)),
    ("/api/v1/configuration/revisions/<number>/*", ("revision",)),
    ("/api/v1/credentials/<pk>/*", ("credential",)),
    ("/api/v1/groups/<pk>/*", ("group",)),
    ("/api/v1/identity-providers/<pk>/*", ("provider",)),
    ("/api/v1/nodes/<pk>/*", ("node",)),
    ("/api/v1/passes/<pk>/*", ("pass",)),
    ("/api/v1/policies/<pk>/*", ("policy",)),
    ("/api/v1/pools/<pk>/*", ("pool",)),
    ("/api/v1/profiles/<pk>/*", ("profile",)),
    ("/api/v1/queues/<name_or_id>/*", ("queue",)),
    ("/api/v1/service-accounts/<pk>/*", ("account",)),
    ("/api/v1/tasks/<pk>/*", TASKS),
    ("/api/v1/tenants/<pk>/*", ("tenant",)),
    ("/api/v1/users/<pk>/*", ("person", "guest")),
    ("/api/v1/vaults/<pk>/*", ("vault", "team-vault")),
    ("/api/v1/volumes/<pk>/*", ("volume",)),
    ("/admin/accounts/credential/<*", ("credential",)),
    ("/admin/accounts/user/<*", ("person",)),
    ("/admin/allocation/passrecord/<*", ("pass",)),
    ("/admin/auth/group/<*", ("group",)),
    ("/admin/configuration/revision/<*", ("revision",)),
    ("/admin/events/event/<*", ("event",)),
    ("/admin/nodes/node/<*", ("node",)),
    ("/admin/notices/noticerule/<*", ("notice-rule",)),
    ("/admin/notices/notice/<*", ("notice",)),
    ("/admin/notices/noticesettings/<*", ("notice-settings",)),
    ("/admin/nodes/volume/<*", ("volume",)),
    ("/admin/nodes/volumeuserpermission/<*", ("volume-grant",)),
    ("/admin/policies/draftpool/<*", ("draft-pool",)),
    ("/admin/policies/draftprofile/<*", ("draft-profile",)),
    ("/admin/policies/draftstate/<*", ("draft-state",)),
    ("/admin/policies/policy/<*", ("policy",)),
    ("/admin/policies/pool/<*", ("pool",)),
    ("/admin/policies/profile/<*", ("profile",)),
    ("/admin/policies/policyuserpermission/<*", ("grant",)),
    ("/admin/policies/policygrouppermission/<*", ("group-grant",)),
    # The world has none of these: requests find nothing.
    ("/admin/policies/*permission/<*", ("no-grant",)),
    ("/admin/tasks/taskuserpermission/<*", ("task-grant",)),
    ("/admin/tasks/taskgrouppermission/<*", ("no-grant",)),
    ("/admin/nodes/volumegrouppermission/<*", ("no-grant",)),
    ("/admin/nodes/installation/<*", ("no-grant",)),
    ("/admin/accounts/loginrules/<*", ("no-grant",)),
    ("/admin/vaults/*permission/<*", ("no-grant",)),
    ("/admin/vaults/vault/<*", ("vault", "team-vault")),
    ("/admin/accounts/tenant/<*", ("tenant",)),
    # Its address there has the id, not the slug: nothing is found.
    ("/admin/accounts/identityprovider/<*", ("no-grant",)),
    ("/admin/events/auditentry/<*", ("audit",)),
    ("/admin/usage/rate/<*", ("rate",)),
    ("/admin/policies/queue/<*", ("queue",)),
    ("/admin/policies/registrycredential/<*", ("registry",)),
    ("/admin/tasks/attempt/<*", ("attempt",)),
    ("/admin/tasks/task/<*", ("waiting",)),
    ("/admin/r/<*", ("policy",)),
    ("card:policy_card", ("policy",)),
    ("card:policy_tasks", ("policy",)),
    ("card:policy_own_usage", ("policy",)),
    ("card:policy_pause", ("policy",)),
    ("card:queue_waiting", ("queue",)),
    ("card:node_detail", ("node",)),
    ("card:task_rows", ()),
    ("card:task_*", TASKS),
)

# Holes that name no object of their own.
FILLED = {
    "wanted": "csv",
    "side": "live",
    "preset": "oidc",
    "app_label": "policies",
    "url": "nowhere",
    "generation": "1",
    "name": "overview",
}
# Parameters without which some addresses answer nothing.
ASKED = {
    "/admin/autocomplete/": ("?app_label=policies&model_name=policy&field_name=parent&term=mk"),
    "/admin/search/": "?s=mk",
    "/api/v1/access/explain/": "?object=policy.<key>",
}
# A second hole names what belongs to the first.
FOLLOWING = {
    "queue_pk": "queue",
    "profile": "profile",
    "key_pk": "credential",
    "credential_pk": "credential",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A request of a role to a surface about an object of this kind, at `place`, of `owner`."""

    surface: Surface
    role: Role
    relation: Relation
    kind: str = ""
    place: str = ""
    owner: str = ""

    def __str__(self) -> str:
        about = f" about {self.kind} ({self.relation})" if self.kind else ""
        return f"{self.surface} by {self.role}{about}"


def kinds_of(address: str) -> tuple[str, ...]:
    return next((kinds for pattern, kinds in ABOUT if fnmatchcase(address, pattern)), ())


def cells_of(world: World, role: Role, surface: Surface) -> Iterator[Cell]:
    """One cell for each kind of object and each owner."""
    kinds = kinds_of(surface.address)
    is_site = surface.address.startswith("/admin/")
    if not kinds:
        yield Cell(surface, role, Relation.NOTHING)
        return
    for kind in kinds:
        seen: set[Relation] = set()
        for place, owner in _places(world, kind):
            relation = role.relation(place, owner)
            # Users of the admin site see all or nothing of a kind.
            if relation not in seen and not (is_site and seen):
                seen.add(relation)
                yield Cell(surface, role, relation, kind, place, owner)
        yield Cell(surface, role, Relation.ABSENT, kind)


def _places(world: World, kind: str) -> Iterator[tuple[str, str]]:
    """The places of such objects: teams first, which have everything, then tenants."""
    found = [(place, owner) for one, place, owner in world.objects if one == kind]
    return iter(sorted(found, key=lambda one: one[0] in TENANTS))


def address_of(world: World, cell: Cell) -> str:
    """The address of a cell with all its holes filled."""
    address = cell.surface.address
    if cell.surface.is_card:
        name = address.removeprefix("card:")
        key = key_of(world, cell) if cell.kind else ""
        return f"/live/{name}/?key={key}" if key else f"/live/{name}/"
    for place, hole in enumerate(cell.surface.holes):
        address = address.replace(f"<{hole}>", _filled(world, cell, hole, is_first=place == 0))
    asked = ASKED.get(cell.surface.address, "")
    return address + (asked.replace("<key>", key_of(world, cell)) if cell.kind else asked)


def key_of(world: World, cell: Cell) -> str:
    """Number, UUID or name of the object of the cell."""
    if cell.relation is Relation.ABSENT:
        return absent(cell.kind)
    return named(cell.kind, world.one(cell.kind, cell.place, cell.owner))


def named(kind: str, row: Any) -> str:
    if kind == "provider":
        return str(row.slug)
    if kind == "revision":
        return str(row.number)
    return str(row if isinstance(row, str) else row.pk)


def absent(kind: str) -> str:
    """A key of this kind that no row has."""
    if kind in {"provider", "invitation"}:
        return NO_NAME
    if kind == "rule":
        return f"policy.{NO_NUMBER}.read.person"
    is_uuid = kind in {*TASKS, "vault", "team-vault", "attempt"}
    return NO_UUID if is_uuid else str(NO_NUMBER)


def _filled(world: World, cell: Cell, hole: str, *, is_first: bool) -> str:
    if hole in FILLED:
        return FILLED[hole]
    if hole == "number" and not is_first:
        return "1"
    if hole == "content_type_id":
        return str(world.one("policy-type", "x"))
    if is_first or hole not in FOLLOWING:
        return key_of(world, cell)
    kind = FOLLOWING[hole]
    for owner in (cell.owner, "", "account"):
        if cell.relation is not Relation.ABSENT and (kind, cell.place, owner) in world.objects:
            return named(kind, world.one(kind, cell.place, owner))
    return absent(kind)
