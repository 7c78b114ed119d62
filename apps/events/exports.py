"""The audit log as files: CSV for people, JSON lines for programs, streamed oldest first."""

import json
from collections.abc import Callable, Iterator

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.utils import timezone

from apps.core.spreadsheets import csv_line
from apps.events.chain import FIELDS, entry_facts
from apps.events.models import AuditEntry

CHUNK = 1000
COLUMNS = (*FIELDS, "hash")
_JSON = frozenset({"others", "before", "after", "details"})


def audit_csv(entries: QuerySet[AuditEntry]) -> Iterator[bytes]:
    """The entries as CSV, with a header line."""
    yield csv_line(COLUMNS).encode()
    yield from _chunks(entries, _csv)


def audit_json_lines(entries: QuerySet[AuditEntry]) -> Iterator[bytes]:
    """One object per line: the hashed fields, and the hash."""
    yield from _chunks(entries, _json)


# Name of the format: content type, ending of the file, function that writes it.
FORMATS: dict[str, tuple[str, str, Callable[[QuerySet[AuditEntry]], Iterator[bytes]]]] = {
    "csv": ("text/csv; charset=utf-8", "csv", audit_csv),
    "jsonl": ("application/jsonl", "jsonl", audit_json_lines),
}


def audit_download(entries: QuerySet[AuditEntry], wanted: str) -> StreamingHttpResponse:
    """A streamed response in one of `FORMATS`."""
    kind, ending, make = FORMATS[wanted]
    name = f"rpm-audit-{timezone.now():%Y%m%d-%H%M%S}.{ending}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(make(entries), content_type=kind, headers=headers)


def _chunks(entries: QuerySet[AuditEntry], line: Callable[[AuditEntry], str]) -> Iterator[bytes]:
    """Pages by the last key: no cursor is held open while a client reads slowly."""
    last = 0
    while chunk := list(entries.order_by("id").filter(id__gt=last)[:CHUNK]):
        last = chunk[-1].pk
        yield "".join(map(line, chunk)).encode("utf-8", "replace")


def _csv(entry: AuditEntry) -> str:
    facts = entry_facts(entry) | {"hash": entry.hash}
    return csv_line(
        json.dumps(facts[name], ensure_ascii=False) if name in _JSON else facts[name]
        for name in COLUMNS
    )


def _json(entry: AuditEntry) -> str:
    facts = entry_facts(entry) | {"hash": entry.hash}
    return f"{json.dumps(facts, ensure_ascii=False)}\n"
