"""Whether the chain of the audit log is whole, and what is wrong where it is not.

Pure over the entries in their order; it trusts nothing that the database says of itself.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from apps.events.chain import entry_facts, entry_hash
from apps.events.models import GENESIS, AuditEntry

# The most findings; a chain that was cut into pieces needs no more of them.
MOST_FINDINGS = 100


@dataclass(frozen=True, slots=True)
class ChainFinding:
    """`kind` is changed, removed, added, rewritten or unknown; `position` is where in the chain."""

    kind: str
    position: int
    sentence: str


@dataclass(slots=True)
class ChainReport:
    """`length` and `head` are those of the entries that were read."""

    length: int = 0
    head: str = GENESIS
    findings: list[ChainFinding] = field(default_factory=list)
    # The position of the entry with the expected hash; None where there is none.
    expected_at: int | None = None

    @property
    def is_whole(self) -> bool:
        return not self.findings


def chain_verify(
    entries: Iterable[AuditEntry], *, length: int, head: str, expect: str = ""
) -> ChainReport:
    """Go through all sealed entries, the first one first.

    Args:
        length, head: of the row that counts them.
        expect: a hash that was kept elsewhere; empty for none.
    """
    report = ChainReport()
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
        report.findings.append(ChainFinding("unknown", report.length, words))
    return report


def _problems(entry: AuditEntry, so_far: ChainReport, *, is_sound: bool) -> Iterator[ChainFinding]:
    position = entry.position or 0
    first_missing = so_far.length + 1
    if position > first_missing:
        yield _removed_finding(first_missing, position - 1)
    elif entry.previous_hash != so_far.head and is_sound:
        # The hash before fits its own content, and this one was made after another.
        words = (
            f"Entry {position - 1} is not the one that stood before entry {position}: it was "
            "changed and hashed again, or put there in place of another."
            if position > 1
            else "Entry 1 does not begin the chain."
        )
        yield ChainFinding("rewritten", max(position - 1, 1), words)
    if entry_hash(entry_facts(entry)) != entry.hash:
        yield ChainFinding("changed", position, f"{_named(entry)} was changed.")


def _at_the_end(report: ChainReport, length: int, head: str) -> Iterator[ChainFinding]:
    if report.length < length:
        yield _removed_finding(report.length + 1, length)
    elif report.head != head:
        words = "The last entry is not the one that was sealed last: it was replaced."
        yield ChainFinding("rewritten", report.length, words)


def added_finding(first: int, last: int) -> ChainFinding:
    """Entries behind those that were sealed."""
    which = f"Entry {first} was" if first == last else f"Entries {first} to {last} were"
    return ChainFinding("added", first, f"{which} added, but not by the sealing worker.")


def _removed_finding(first: int, last: int) -> ChainFinding:
    which = f"Entry {first} was" if first == last else f"Entries {first} to {last} were"
    return ChainFinding("removed", first, f"{which} removed.")


def _named(entry: AuditEntry) -> str:
    who = entry.actor or "nobody"
    return f"Entry {entry.position} ({entry.at:%Y-%m-%d %H:%M:%S} UTC, {entry.verb} by {who})"
