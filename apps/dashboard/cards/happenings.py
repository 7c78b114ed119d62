"""The lines of "What happened": newest first, each with its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.allocation.explaining import Names
from apps.dashboard.cards.reasons import explain
from apps.dashboard.cards.words import plural
from apps.dashboard.selectors.history import History
from apps.events.models import Event


@dataclass(frozen=True, slots=True)
class Step:
    """`kind` is the colour, `icon` the sign."""

    at: datetime
    kind: str
    icon: str
    title: str
    text: str


# kind of event: colour, sign, words
_EVENTS: Mapping[str, tuple[str, str, str]] = {
    "task.created": ("wait", "file-pen", "Draft made"),
    "task.enqueued": ("ok", "check", "Enqueued"),
    "task.queued": ("wait", "hourglass", "Back in the queue"),
    "task.dequeued": ("wait", "file-pen", "Taken out of the queue"),
    "task.allocated": ("use", "cpu", "Allocated"),
    "task.running": ("use", "play", "Running"),
    "task.started": ("use", "play", "Running"),
    "task.stopping": ("warn", "square", "Stop asked"),
    "task.preempted": ("warn", "corner-down-left", "Preempted"),
    "task.paused": ("wait", "pause", "Paused"),
    "task.completed": ("ok", "check", "Completed"),
    "task.failed": ("bad", "x", "Failed"),
    "task.aborted": ("wait", "ban", "Aborted"),
    "task.rejected": ("bad", "circle-alert", "Rejected"),
    "task.lost": ("bad", "unplug", "Node lost"),
}
_UNKNOWN = ("wait", "info", "")
# States from which going into a queue is a person's doing, not a return.
_BEGINNINGS = ("", "draft", "completed", "failed", "aborted")
# What becomes of a task that was preempted.
_THEN = {
    "queued": "waits again in its old place",
    "paused": "paused, as its queue says",
    "aborted": "ended",
}
_STANDINGS = {
    "reserved": "within the reservation",
    "lent": "on the department's reservation",
    "over_quota": "over quota",
}


def steps_of(history: History, names: Names) -> tuple[Step, ...]:
    """Events and changes of the reason, newest first."""
    steps = [_from_event(event, history, names) for event in history.events]
    for change in history.reasons:
        view = explain(change.data.get("reasons", ())[:1], names)
        steps.append(Step(change.at, "wait", view.word.icon, "Waiting", view.verdict))
    return tuple(sorted(steps, key=lambda step: step.at, reverse=True))


def _from_event(event: Event, history: History, names: Names) -> Step:
    kind, icon, title = _EVENTS.get(event.kind, _UNKNOWN)
    is_return = "generation" in event.data or event.data.get("from", "") not in _BEGINNINGS
    if event.kind == "task.queued" and not is_return:
        kind, icon, title = _EVENTS["task.enqueued"]
    title = title or event.kind.partition(".")[2].replace("_", " ").capitalize()
    words = _words(event.data, names)
    if event.kind == "task.preempted":
        words.insert(0, _for_whom(event.data, history, names))
    if event.actor is not None:
        words.append(f"by {event.actor}")
    return Step(event.at, kind, icon, title, ", ".join(filter(None, words)))


def _for_whom(data: Mapping[str, Any], history: History, names: Names) -> str:
    """Whose task gets the room, in the reader's words; empty where that is not known any more."""
    policy = history.taker_policy(data.get("generation", 0))
    if policy is None:
        return ""
    whose = names.policy(policy)
    return f"for {whose}" if names.is_strange(policy) else f"for a task of {whose}"


def _words(data: Mapping[str, Any], names: Names) -> list[str]:
    # A sentence that goes on after a comma has no stop before it.
    words = [str(data.get("detail") or data.get("reason") or "").rstrip(".")]
    if data.get("pool") is not None:
        words.append(names.pool(data["pool"]))
    if data.get("generation"):
        words.append(f"attempt {data['generation']}")
    if data.get("standing"):
        words.append(_STANDINGS.get(str(data["standing"]), str(data["standing"])))
    words.append(_what_follows(data, names))
    if data.get("exit_code") is not None:
        words.append(f"exit code {data['exit_code']}")
    return words


def _what_follows(data: Mapping[str, Any], names: Names) -> str:
    """Of an admission whose room others have to leave, and of a preemption."""
    if data.get("waits_for") and names.strange:
        return "starts once work there has stopped"
    if data.get("waits_for"):
        has = "has" if data["waits_for"] == 1 else "have"
        return f"starts once {plural(data['waits_for'], 'task')} there {has} stopped"
    if data.get("is_moved"):
        return "starts again on another node of its pool"
    return _THEN.get(str(data.get("then")), "")
