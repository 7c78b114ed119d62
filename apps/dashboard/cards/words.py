"""The labels, colours and icons of states and reasons: one table each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """`kind` is the colour: use, wait, warn, ok or bad."""

    kind: str
    icon: str
    text: str


TASK_STATES = {
    "draft": Word("wait", "file-pen", "Draft"),
    "queued": Word("wait", "hourglass", "Queued"),
    "allocated": Word("use", "cpu", "Allocated"),
    "running": Word("use", "play", "Running"),
    "stopping": Word("warn", "square", "Stopping"),
    "paused": Word("wait", "pause", "Paused"),
    "rejected": Word("bad", "circle-alert", "Rejected"),
    "completed": Word("ok", "check", "Completed"),
    "failed": Word("bad", "x", "Failed"),
    "aborted": Word("wait", "ban", "Aborted"),
}
ATTEMPT_STATES = {
    "allocated": Word("use", "cpu", "Allocated"),
    "starting": Word("use", "loader-circle", "Starting"),
    "running": Word("use", "play", "Running"),
    "stopping": Word("warn", "square", "Stopping"),
    "suspect": Word("warn", "circle-help", "Suspect"),
    "lost": Word("bad", "unplug", "Lost"),
    "finished": Word("ok", "check", "Finished"),
}
# Of finished attempts that did not complete.
PREEMPTED = Word("warn", "corner-down-left", "Preempted")
STOPPED = Word("wait", "square", "Stopped")
FAILED = Word("bad", "x", "Failed")
NODE_STATES = {
    "new": Word("wait", "loader-circle", "New"),
    "healthy": Word("ok", "circle-check", "Healthy"),
    "suspect": Word("warn", "circle-help", "Suspect"),
    "refused": Word("bad", "lock", "Refused"),
}
REASONS = {
    "disabled": Word("wait", "power-off", "Disabled"),
    "suspended": Word("warn", "pause", "Suspended until confirmed"),
    "paused": Word("wait", "pause", "Paused"),
    "budget": Word("warn", "wallet", "Budget"),
    "no_server": Word("wait", "server-off", "No server"),
    "no_pool": Word("bad", "unlink", "No pool"),
    "limit": Word("warn", "ruler", "Limit"),
    "over_quota_not_allowed": Word("warn", "shield-off", "Over quota not allowed"),
    "needs_reservation": Word("warn", "shield", "Needs reservation"),
    "capacity": Word("wait", "cpu", "Capacity"),
    "outranked": Word("wait", "arrow-down-wide-narrow", "Outranked"),
    "behind": Word("wait", "list-ordered", "Behind"),
    "held": Word("wait", "lock", "Held"),
    "draining": Word("use", "timer", "Draining"),
    "protected": Word("wait", "shield-check", "Protected"),
    "on_hold": Word("warn", "pause", "On hold"),
    "admin_hold": Word("warn", "lock", "Admin hold"),
    "dependency": Word("wait", "workflow", "Dependency"),
}
UNKNOWN_REASON = Word("wait", "hourglass", "Not checked yet")

METHODS = {"mig": "MIG", "mps": "MPS"}


def shares_word(*, memory: str, compute: str, methods: Iterable[str]) -> Word:
    """What nodes do about fractions of a GPU; see `apps.nodes.selectors.ShareEnforcement`."""
    if {memory, compute} == {"accounted"}:
        return Word("wait", "shield-off", "Shares of a GPU accounted, not enforced")
    by = ", ".join(METHODS[method] for method in methods if method in METHODS)
    if memory == compute:
        return Word("ok", "shield-check", f"Shares of a GPU enforced by {by}")
    return Word("ok", "shield", f"Shares of a GPU: memory {memory}, compute {compute} ({by})")


def duration_text(seconds: float) -> str:
    """`15 s`, `10 min`, `2 h 05 min`, `3 d 4 h`: the two largest units."""
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{minutes} min" if minutes else f"{whole} s"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `11th`."""
    if 10 <= number % 100 <= 20:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 task`, `2 tasks`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def joined(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; empty for none."""
    *before, last = parts or ("",)
    return f"{', '.join(before)} and {last}" if before else last


def elements_in_words(counts: Mapping[str, int]) -> str:
    """The elements of an array, such as `3 running, 97 left`; empty for any other task."""
    return ", ".join(
        f"{counts[word]} {word}" for word in (*TASK_STATES, "left") if counts.get(word)
    )
