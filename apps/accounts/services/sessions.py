"""Sessions of people in browsers: told of once a minute, and ended one by one."""

import math
import time
from typing import Any

from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import PersonSession, User
from apps.accounts.models.sessions import AGENT_LENGTH
from apps.accounts.selectors import session_digest
from apps.accounts.services.groups import rights_changed
from apps.accounts.services.people_changes import new_nonce
from apps.accounts.session_store import stored_key
from apps.core.errors import NotFound
from apps.core.recording import event_record

NOTE_EVERY_S = 60.0
MOST_NOTED = 50_000
# When this process noted which session, so that nothing is read to find out that nothing is due.
# Not in the session itself: each change of it would let it last longer.
_noted: dict[str, float] = {}


def session_note(*, user: User, key: str, address: str, agent: str) -> None:
    """Keep where the session with this key is used from, once a minute and process at most."""
    now = time.monotonic()
    if _noted.get(key, -math.inf) > now - NOTE_EVERY_S:
        return
    facts = {"user": user, "address": address, "agent": agent.replace("\0", "")[:AGENT_LENGTH]}
    PersonSession.objects.update_or_create(
        session_key=stored_key(key), defaults={**facts, "seen_at": timezone.now()}
    )
    if len(_noted) >= MOST_NOTED:
        _noted.clear()
    _noted[key] = now


@transaction.atomic
def session_end(*, user: User, digest: str) -> None:
    """Sign one's own browser out, wherever it is; its pages begin anew and find nobody.

    Args:
        digest: `session_digest` of its key as it is stored.

    Raises:
        NotFound: it is nobody's, somebody else's, or over.
    """
    for row in PersonSession.objects.filter(user=user):
        if session_digest(row.session_key) == digest:
            _end([row], user)
            return
    raise NotFound("This session is over already.")


@transaction.atomic
def sessions_end_others(*, user: User, keeping: str) -> User:
    """Sign all of one's browsers out but the one with this key.

    Those of which nobody took a note end, too: every session is bound to a value of the person
    that is another afterwards.

    Returns:
        The person as they are now; the caller binds the session that stays to them anew.
    """
    row = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    row.session_nonce = new_nonce()
    row.save(update_fields=["session_nonce"])
    rows = list(PersonSession.objects.filter(user=row).exclude(session_key=stored_key(keeping)))
    _end(rows, row)
    return row


def sessions_sweep() -> int:
    """Remove sessions that have run out, and what was told of those that are over; how many."""
    count, _ = Session.objects.filter(expire_date__lte=timezone.now()).delete()
    PersonSession.objects.exclude(session_key__in=Session.objects.values("session_key")).delete()
    return count


def _end(rows: list[PersonSession], user: User) -> None:
    keys = [row.session_key for row in rows]
    Session.objects.filter(session_key__in=keys).delete()
    PersonSession.objects.filter(session_key__in=keys).delete()
    told: dict[str, Any] = {"addresses": sorted({row.address for row in rows}), "count": len(rows)}
    event_record(
        "session.ended",
        actor=user,
        object_type="user",
        object_id=user.pk,
        data={"name": user.username, "before": told, "after": {}},
    )
    rights_changed([user.pk])
