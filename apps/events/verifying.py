"""Whether the chain of the audit log is whole, and what is wrong where it is not.

Pure over the entries in their order; nothing here believes what the database says of itself.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from apps.events.chain import entry_facts, entry_hash
from apps.events.models import GENESIS, AuditEntry

# So many sentences at most; a chain that was cut into pieces needs no more of them.
MOST_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind` is changed, removed, added, rewritten or unknown; `position` is where in the chain."""

    kind: str
    position: int
    sentence: str


@dataclass(slots=True)
class Report:
    """`length` and `head` are those of what was read."""

    length: int = 0
    head: str = GENESIS
    findings: list[Finding] = field(default_factory=list)
    # The position of the entry with the hash that somebody kept; None where there is none.
    expected_at: int | None = None

    @property
    def is_whole(self) -> bool:
        return not self.findings


def chain_verify(
    entries: Iterable[AuditEntry], *, length: int, head: str, expect: str = ""
) -> Report:
    """Go through all sealed entries, the first one first.

    Args:
        length, head: of the row that counts them.
        expect: a hash that somebody kept elsewhere; empty where nobody did.
    """
    report = Report()
    if expect == GENESIS:
        report.expected_at = 0
    is_sound = True
    for entry in entries:
        found = list(_problems(entry, report, is_sound=is_sound))
        is_sound = not any(one.kind == "changed" for one in found)
        report.findings += found[: MOST_FINDINGS - len(report.findings)]
        report.length, report.head = entry.position or 0, entry.hash
        if expect and entry.hash == expect:
            report.expected_at = entry.position
    report.findings += _at_the_end(report, length, head)
    if expect and report.expected_at is None:
        words = f"No entry has the hash {expect}: the chain was rewritten or cut before it."
        report.findings.append(Finding("unknown", report.length, words))
    return report


def _problems(entry: AuditEntry, so_far: Report, *, is_sound: bool) -> Iterator[Finding]:
    position = entry.position or 0
    first_missing = so_far.length + 1
    if position > first_missing:
        yield _removed(first_missing, position - 1)
    elif entry.previous_hash != so_far.head and is_sound:
        # The hash before fits its own content, and this one was made after another.
        words = (
            f"Entry {position - 1} is not the one that stood before entry {position}: it was "
            "changed and hashed anew, or put there in place of another."
            if position > 1
            else "Entry 1 does not begin the chain."
        )
        yield Finding("rewritten", max(position - 1, 1), words)
    if entry_hash(entry_facts(entry)) != entry.hash:
        yield Finding("changed", position, f"{_named(entry)} was changed.")


def _at_the_end(report: Report, length: int, head: str) -> Iterator[Finding]:
    if report.length < length:
        yield _removed(report.length + 1, length)
    elif report.head != head:
        words = "The last entry is not the one that was sealed last: it was replaced."
        yield Finding("rewritten", report.length, words)


def added(first: int, last: int) -> Finding:
    """Entries behind those that were sealed."""
    which = f"Entry {first} was" if first == last else f"Entries {first} to {last} were"
    return Finding("added", first, f"{which} added by somebody else than who seals.")


def _removed(first: int, last: int) -> Finding:
    which = f"Entry {first} was" if first == last else f"Entries {first} to {last} were"
    return Finding("removed", first, f"{which} removed.")


def _named(entry: AuditEntry) -> str:
    who = entry.actor or "nobody"
    return f"Entry {entry.position} ({entry.at:%Y-%m-%d %H:%M:%S} UTC, {entry.verb} by {who})"
