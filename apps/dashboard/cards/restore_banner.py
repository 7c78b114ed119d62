"""The banner after a backup was restored: what is suspended, and what to do about it."""

from dataclasses import dataclass
from datetime import datetime

from apps.dashboard.cards.words import plural
from apps.nodes.models import Installation
from apps.nodes.selectors import nodes_unsettled

CONFIRM = "rpmctl confirm-restored"
MOST_NAMES = 10


@dataclass(frozen=True, slots=True)
class RestoreBanner:
    """`command` is empty once an administrator has confirmed the restore."""

    at: datetime
    sentence: str
    command: str


def restore_banner() -> RestoreBanner | None:
    """None where the database is known to be the right one, which is nearly always."""
    row = Installation.objects.get(id=1)
    if row.restored_at is None:
        return None
    names = list(nodes_unsettled().values_list("name", flat=True))
    named = ", ".join(names[:MOST_NAMES]) + (" and others" if len(names) > MOST_NAMES else "")
    if row.restore_confirmed_at is not None:
        words = f"It was confirmed. Passes go on once {named or 'every node'} has answered."
        return RestoreBanner(row.restored_at, words, "")
    words = "Nothing is admitted or launched, and nothing unknown on a node is ended. "
    words += (
        f"{plural(len(names), 'node runs', 'nodes run')} what this database does not know: "
        f"{named}. Check these tasks, and let finish what should."
        if names
        else "No node has reported tasks that this database does not know. "
        "Check that all nodes answer."
    )
    return RestoreBanner(row.restored_at, words, CONFIRM)
