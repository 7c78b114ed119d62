"""Reading the audit log."""

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Max, Q, QuerySet, TextField
from django.db.models.functions import Cast

from apps.accounts.models import User
from apps.accounts.selectors import Person, is_admin
from apps.events.chain_check import ChainReport, added_finding, chain_verify
from apps.events.models import AuditChain, AuditEntry, Event


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are wanted; empty means all.

    `verb` may end in a point for all that begin with it; `target` is a kind of object, a kind and
    an id or name (`policy 7`, `policy Dev`), or a name. Where nothing matches `who`, `verb` or
    `target` exactly, the beginning of a name or of a word of the verb is enough.
    """

    who: str = ""
    verb: str = ""
    target: str = ""
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""


def last_event(kind: str, object_id: int | UUID, *, actor: User | None = None) -> Event | None:
    """The newest event of a kind, such as `queue.paused`, for one object.

    Args:
        actor: only what this user caused; None: everything.
    """
    noun = kind.split(".", maxsplit=1)[0]
    events = Event.objects.filter(object_type=noun, object_id=str(object_id), kind=kind)
    if actor is not None:
        events = events.filter(actor=actor)
    return events.select_related("actor").first()


def audit_visible_to(user: Person) -> QuerySet[AuditEntry]:
    """All of it for administrators, nothing for others."""
    return AuditEntry.objects.all() if is_admin(user) else AuditEntry.objects.none()


def audit_filtered(entries: QuerySet[AuditEntry], wanted: AuditFilter) -> QuerySet[AuditEntry]:
    """The entries that match the whole filter."""
    if wanted.since is not None:
        entries = entries.filter(at__gte=wanted.since)
    if wanted.until is not None:
        entries = entries.filter(at__lt=wanted.until)
    if wanted.who:
        entries = _matching(
            entries,
            Q(actor__iexact=wanted.who) | Q(acted_by__iexact=wanted.who),
            Q(actor__istartswith=wanted.who) | Q(acted_by__istartswith=wanted.who),
        )
    if wanted.verb:
        is_prefix = wanted.verb.endswith(".")
        entries = _matching(
            entries,
            Q(**{"verb__startswith" if is_prefix else "verb": wanted.verb}),
            Q(verb__istartswith=wanted.verb) | Q(verb__icontains=f".{wanted.verb}"),
        )
    if wanted.target:
        entries = _about(entries, wanted.target)
    return _with_text(entries, wanted.text) if wanted.text else entries


def audit_chain() -> AuditChain:
    """The length and the last hash of the chain."""
    return AuditChain.objects.filter(id=1).first() or AuditChain()


def audit_unsealed() -> int:
    """How many entries wait for their place in the chain: a few, for seconds."""
    return AuditEntry.objects.filter(position__isnull=True).count()


def audit_verified(*, expect: str = "") -> ChainReport:
    """Verify the whole chain; entries that are sealed meanwhile are left out.

    Args:
        expect: a head that was kept elsewhere; empty for none.
    """
    chain = audit_chain()
    sealed = AuditEntry.objects.filter(position__isnull=False).order_by("position")
    entries = sealed.filter(position__lte=chain.length).iterator(chunk_size=2000)
    report = chain_verify(entries, length=chain.length, head=chain.head, expect=expect)
    last: int = sealed.aggregate(last=Max("position"))["last"] or 0
    # Read again, and after: sealing increases the length together with the entries.
    now = audit_chain().length
    if last > now:
        report.findings.append(added_finding(now + 1, last))
    return report


def _about(entries: QuerySet[AuditEntry], target: str) -> QuerySet[AuditEntry]:
    name = target.strip()
    noun, _, which = name.partition(" ")
    kind, which = Q(object_type=noun.lower()), which.strip()
    exact = kind & (Q(object_id=which) | Q(object_name__iexact=which)) if which else kind
    loose = Q(object_name__istartswith=name)
    if which:
        loose |= kind & Q(object_name__istartswith=which)
    return _matching(entries, exact, loose)


def _matching(entries: QuerySet[AuditEntry], exact: Q, loose: Q) -> QuerySet[AuditEntry]:
    """The entries that match exactly; where there are none, those that match loosely."""
    found = entries.filter(exact)
    return found if found.exists() else entries.filter(loose)


def _with_text(entries: QuerySet[AuditEntry], text: str) -> QuerySet[AuditEntry]:
    columns = ("actor", "acted_by", "verb", "object_name", "object_id", "reason", "address")
    wanted = Q(request_id=text)
    for column in columns:
        wanted |= Q(**{f"{column}__icontains": text})
    for column in ("before", "after", "details"):
        entries = entries.alias(**{f"{column}_text": Cast(column, TextField())})
        # SQLite keeps JSON with characters beyond ASCII written as \\u00f6.
        for form in {text, json.dumps(text)[1:-1]}:
            wanted |= Q(**{f"{column}_text__icontains": form})
    return entries.filter(wanted)
