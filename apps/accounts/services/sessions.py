"""Sessions of people in browsers: noted once a minute, and ended one by one."""

import math
import time
from typing import Any

from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import PersonSession, User
from apps.accounts.models.sessions import AGENT_LENGTH
from apps.accounts.selectors import session_digest
from apps.accounts.services.groups import permissions_change_notify
from apps.accounts.services.people_changes import new_nonce
from apps.accounts.session_store import stored_key
from apps.core.errors import NotFound
from apps.core.recorders import event_record

NOTE_EVERY_S = 60.0
MOST_NOTED = 50_000
# When this process noted each session, so that nothing is read when no note is due.
# Not in the session itself: each change of it would let it last longer.
_noted: dict[str, float] = {}


def session_note(*, user: User, key: str, address: str, agent: str) -> None:
    """Note from where the session with this key is used, at most once per minute and process."""
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
    """Sign out one of the user's browsers; its open pages reload without a session.

    Args:
        digest: `session_digest` of its key as it is stored.

    Raises:
        NotFound: it does not exist, belongs to another user, or is over.
    """
    for row in PersonSession.objects.filter(user=user):
        if session_digest(row.session_key) == digest:
            _end([row], user)
            return
    raise NotFound("This session is over already.")


@transaction.atomic
def sessions_end_others(*, user: User, except_key: str) -> User:
    """Sign out all browsers of the user except the one with this key.

    Sessions that were never noted end, too: every session is bound to a nonce of the person, which
    this changes.

    Returns:
        The person as they are now; the caller binds the session that stays to them again.
    """
    row = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    row.session_nonce = new_nonce()
    row.save(update_fields=["session_nonce"])
    rows = list(PersonSession.objects.filter(user=row).exclude(session_key=stored_key(except_key)))
    _end(rows, row)
    return row


def sessions_prune() -> int:
    """Remove expired sessions, and the rows about those that are over; how many."""
    count, _ = Session.objects.filter(expire_date__lte=timezone.now()).delete()
    PersonSession.objects.exclude(session_key__in=Session.objects.values("session_key")).delete()
    return count


def _end(rows: list[PersonSession], user: User) -> None:
    keys = [row.session_key for row in rows]
    Session.objects.filter(session_key__in=keys).delete()
    PersonSession.objects.filter(session_key__in=keys).delete()
    details: dict[str, Any] = {
        "addresses": sorted({row.address for row in rows}),
        "count": len(rows),
    }
    event_record(
        "session.ended",
        actor=user,
        object_type="user",
        object_id=user.pk,
        data={"name": user.username, "before": details, "after": {}},
    )
    permissions_change_notify([user.pk])
