"""What each role may know: its answers may contain no other markers."""

from tests.authorisation.marks import Mark
from tests.authorisation.roles import (
    ADMIN,
    NOBODY,
    OTHER_TENANT,
    QUEUE_ADMIN,
    TEAM_A,
    TEAM_B,
    TENANT_ADMIN,
    Relation,
    Role,
)
from tests.authorisation.world import OWNER

OWN, MATE, TEAM, INSTALLATION = Relation.OWN, Relation.MATE, Relation.TEAM, Relation.INSTALLATION

# Shown on the sign-in page, and on pages behind its links.
PUBLIC = frozenset({"provider", "provider-name", "provider-address", "client"})
# No role reads these.
NEVER = frozenset({"secret"})
# Only for the author, not even for administrators.
PRIVATE = frozenset({"vault-text"})

# Objects that all signed-in users may know.
KNOWN: dict[str, frozenset[Relation]] = {
    # Owners and states of tasks in visible queues, and the profiles there.
    "person": frozenset({OWN, MATE}),
    "first-name": frozenset({OWN, MATE}),
    # The page of a policy shows the people of its group.
    "account": frozenset({OWN, MATE, TEAM}),
    "guest": frozenset({TEAM}),
    "waiting": frozenset({OWN, MATE}),
    "running": frozenset({OWN, MATE}),
    "ended": frozenset({OWN, MATE}),
    "shared": frozenset({OWN, MATE}),
    "shared-attempt": frozenset({OWN, MATE}),
    "shared-log": frozenset({OWN}),
    "tag": frozenset({OWN, MATE}),
    "attempt": frozenset({OWN, MATE}),
    "policy": frozenset({TEAM}),
    "policy-text": frozenset({TEAM}),
    "reason": frozenset({TEAM}),
    "group": frozenset({TEAM}),
    "queue": frozenset({TEAM}),
    "second-queue": frozenset({TEAM}),
    "profile": frozenset({TEAM, INSTALLATION}),
    "team-vault": frozenset({TEAM}),
    # The role's own objects.
    "mail": frozenset({OWN}),
    "credential": frozenset({OWN}),
    "notice": frozenset({OWN}),
    "notice-rule": frozenset({OWN}),
    "vault": frozenset({OWN}),
    "vault-text": frozenset({OWN}),
    "draft": frozenset({OWN}),
    "draft-content": frozenset({OWN}),
    "draft-tag": frozenset({OWN}),
    "content": frozenset({OWN}),
    "log": frozenset({OWN}),
    "second-factor": frozenset({OWN}),
    "key-name": frozenset({OWN}),
}

# Queue administrators see all queues: their owners, and names, owners and states of tasks.
_QUEUES = {
    *("queue", "second-queue", "profile", "policy", "person", "first-name", "account"),
    *("waiting", "running", "ended", "shared", "tag", "attempt", "shared-attempt"),
}
# A rule lets the owner of team A read one task of team B: its owner, its tags and its log. The
# owner of team B sees the rule, with its maker. Another lets the owner of team T mount a volume.
_BY_RULE = {
    TEAM_A: {
        *(Mark(kind, "b", OWNER) for kind in ("shared", "shared-attempt", "shared-log")),
        *(Mark(kind, "b", OWNER) for kind in ("person", "first-name", "tag")),
    },
    OTHER_TENANT: {Mark("volume", "x", "")},
    TEAM_B: {Mark("person", "a", OWNER), Mark("person", "x", "root")},
}
# Administrators of a tenant see the policies, people and tasks below their top.
_BELOW = {
    *_QUEUES - {"profile"},
    *("policy-text", "reason", "group", "group-text", "mail", "guest", "guest-mail"),
    *("credential", "content", "log", "shared-log", "team-vault", "team-vault-text"),
}
# Their own group, and administrators of the installation who changed the tenant's objects.
_OF_TENANT = {("group-text", TEAM), ("person", INSTALLATION)}


def may_know(role: Role, mark: Mark) -> bool:
    """Whether an answer to this role may name it."""
    if mark.kind in PUBLIC:
        return True
    if role is NOBODY or mark.kind in NEVER:
        return False
    relation = role.relation(mark.place, mark.owner)
    if relation in KNOWN.get(mark.kind, ()):
        return True
    if mark in _BY_RULE.get(role, ()):
        return True
    if role is ADMIN:
        return mark.kind not in PRIVATE
    if role is QUEUE_ADMIN:
        return mark.kind in _QUEUES
    if role is TENANT_ADMIN:
        # Every profile can be connected.
        is_below = relation is Relation.BELOW and mark.kind in _BELOW
        return mark.kind == "profile" or is_below or (mark.kind, relation) in _OF_TENANT
    return False
