"""Who may know of what: each marker that stands in an answer must be for its reader."""

from tests.authorisation.marks import Mark
from tests.authorisation.roles import ADMIN, NOBODY, QUEUE_ADMIN, TENANT_ADMIN, Role, Whose

OWN, MATE, TEAM, HOUSE = Whose.OWN, Whose.MATE, Whose.TEAM, Whose.HOUSE

# What stands on the page to sign in at, and where it leads.
PUBLIC = frozenset({"provider", "provider-name", "provider-address", "client"})
# Nobody reads these, whoever they are.
NEVER = frozenset({"secret"})
# Only who typed it, not even administrators.
PRIVATE = frozenset({"vault-text"})

# Of whose things of a kind everybody who is signed in may know.
KNOWN: dict[str, frozenset[Whose]] = {
    # Owners and states of what stands in one's queues, and the sizes that can be had there.
    "person": frozenset({OWN, MATE}),
    "first-name": frozenset({OWN, MATE}),
    # Who is in one's group stands on the page of its policy.
    "account": frozenset({OWN, MATE, TEAM}),
    "guest": frozenset({TEAM}),
    "waiting": frozenset({OWN, MATE}),
    "running": frozenset({OWN, MATE}),
    "ended": frozenset({OWN, MATE}),
    "tag": frozenset({OWN, MATE}),
    "attempt": frozenset({OWN, MATE}),
    "policy": frozenset({TEAM}),
    "policy-text": frozenset({TEAM}),
    "reason": frozenset({TEAM}),
    "group": frozenset({TEAM}),
    "queue": frozenset({TEAM}),
    "second-queue": frozenset({TEAM}),
    "profile": frozenset({TEAM, HOUSE}),
    "team-vault": frozenset({TEAM}),
    # One's own.
    "mail": frozenset({OWN}),
    "credential": frozenset({OWN}),
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

# Administrators of queues see all queues: whose they are, and names, owners and states of tasks.
_QUEUES = {
    *("queue", "second-queue", "profile", "policy", "person", "first-name", "account"),
    *("waiting", "running", "ended", "tag", "attempt"),
}
# Administrators of a tenant see the trees, the people and the work below their top.
_BELOW = {
    *_QUEUES - {"profile"},
    *("policy-text", "reason", "group", "group-text", "mail", "guest", "guest-mail"),
    *("credential", "content", "log", "team-vault", "team-vault-text"),
}
# Their own group, and who of the installation did something with what is the tenant's.
_OF_TENANT = {("group-text", TEAM), ("person", HOUSE)}


def may_know(role: Role, mark: Mark) -> bool:
    """Whether an answer to this role may name it."""
    if mark.kind in PUBLIC:
        return True
    if role is NOBODY or mark.kind in NEVER:
        return False
    whose = role.whose(mark.place, mark.owner)
    if whose in KNOWN.get(mark.kind, ()):
        return True
    if role is ADMIN:
        return mark.kind not in PRIVATE
    if role is QUEUE_ADMIN:
        return mark.kind in _QUEUES
    if role is TENANT_ADMIN:
        # Every size of task can be connected.
        is_below = whose is Whose.BELOW and mark.kind in _BELOW
        return mark.kind == "profile" or is_below or (mark.kind, whose) in _OF_TENANT
    return False
