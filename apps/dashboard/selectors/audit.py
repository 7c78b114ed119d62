"""The audit log as its page shows it: filtered, a page of it, each entry with what it changed."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Self
from urllib.parse import parse_qs, urlencode
from zoneinfo import ZoneInfo

from django.db.models import QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import time_zone_of
from apps.dashboard.live import day_of, key_id
from apps.events.models import AuditEntry
from apps.events.selectors import AuditFilter, audit_filtered, audit_visible_to

PER_PAGE = 50
# Of so many latest entries, the verbs are suggested.
VERBS_OF = 2000
NONE = "–"
LONGEST = 2000


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """What the form asks for. Days are those of the reader; what is no day is left out."""

    who: str = ""
    verb: str = ""
    target: str = ""
    text: str = ""
    since: str = ""
    until: str = ""
    before: int = 0

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string such as `who=root&verb=policy.`."""
        given = {key: values[-1].strip() for key, values in parse_qs(query).items()}
        texts = {
            name: given.get(name, "").replace("\0", "")[:200]
            for name in ("who", "verb", "target", "text")
        }
        days = {name: given.get(name, "") for name in ("since", "until")}
        days = {name: day if day_of(day) else "" for name, day in days.items()}
        return cls(**texts, **days, before=key_id(given.get("before", "")))

    def filter(self, zone: ZoneInfo) -> AuditFilter:
        """In moments: `until` is the end of its day."""
        since, until = day_of(self.since), day_of(self.until)
        return AuditFilter(
            who=self.who,
            verb=self.verb,
            target=self.target,
            text=self.text,
            since=_midnight(since, zone) if since else None,
            until=_midnight(until + timedelta(days=1), zone) if until else None,
        )

    def query(self, **changes: str) -> str:
        """As a query string without the page; what is empty is left out."""
        names = ("who", "verb", "target", "text", "since", "until")
        values = {name: getattr(self, name) for name in names} | changes
        return urlencode({name: value for name, value in values.items() if value})


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of what was before and is after; an en dash for what was not there."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class AuditRow:
    """`facts` are what the entry says next to the change."""

    entry: AuditEntry
    changes: tuple[FieldChange, ...]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AuditPage:
    """The newest first; `older` is the id to continue before, None at the end."""

    rows: tuple[AuditRow, ...]
    older: int | None


def audit_matching(user: User, wanted: AuditQuery) -> QuerySet[AuditEntry]:
    """The entries that the form asks for, all pages of them."""
    return audit_filtered(audit_visible_to(user), wanted.filter(time_zone_of(user)))


def audit_page(user: User, wanted: AuditQuery) -> AuditPage:
    """One page of them, in one query."""
    entries = audit_matching(user, wanted).order_by("-id")
    if wanted.before:
        entries = entries.filter(id__lt=wanted.before)
    found = list(entries[: PER_PAGE + 1])
    shown = found[:PER_PAGE]
    return AuditPage(
        rows=tuple(AuditRow(one, tuple(_changes(one)), tuple(_facts(one))) for one in shown),
        older=shown[-1].pk if len(found) > PER_PAGE else None,
    )


def verbs_suggested(user: User) -> list[str]:
    """What was done lately, for the form."""
    latest = audit_visible_to(user).order_by("-id").values_list("verb", flat=True)[:VERBS_OF]
    return sorted(set(latest))


def _changes(entry: AuditEntry) -> Iterator[FieldChange]:
    before, after = entry.before, entry.after
    for field in [*after, *(name for name in before if name not in after)]:
        yield FieldChange(field.replace("_", " "), _text(before, field), _text(after, field))


def _facts(entry: AuditEntry) -> Iterator[tuple[str, str]]:
    for name in entry.details:
        yield name.replace("_", " "), _text(entry.details, name)
    for other in entry.others:
        if isinstance(other, Mapping):
            yield str(other.get("type", "")), str(other.get("name") or other.get("id", ""))


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value in (None, "", [], {}):
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
        shown_text = ", ".join(map(str, value))
    else:
        shown_text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shown_text if len(shown_text) <= LONGEST else f"{shown_text[:LONGEST]}…"


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone)
