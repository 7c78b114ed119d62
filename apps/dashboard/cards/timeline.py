"""The entries of the timeline: newest first, each with its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.allocation.explanation import ReaderNames, queue_of
from apps.dashboard.cards.reasons import explain
from apps.dashboard.cards.words import plural
from apps.dashboard.selectors.task_history import TaskHistory
from apps.events.models import Event


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """`kind` is the colour of the entry."""

    at: datetime
    kind: str
    icon: str
    title: str
    text: str


# kind of event: colour, icon, title
TASK_EVENTS: Mapping[str, tuple[str, str, str]] = {
    "task.created": ("wait", "file-pen", "Created"),
    "task.enqueued": ("ok", "check", "Enqueued"),
    "task.queued": ("wait", "hourglass", "Queued again"),
    "task.draft": ("wait", "file-pen", "Dequeued"),
    "task.moved": ("wait", "arrow-right", "Moved"),
    "task.priority": ("wait", "arrow-down-wide-narrow", "Priority changed"),
    "task.hold": ("warn", "pause", "Put on hold"),
    "task.dependencies": ("wait", "workflow", "Dependencies changed"),
    "task.release": ("ok", "play", "Released"),
    "task.allocated": ("use", "cpu", "Allocated"),
    "task.running": ("use", "play", "Running"),
    "task.started": ("use", "play", "Running"),
    "task.stopping": ("warn", "square", "Stopping"),
    "task.preempted": ("warn", "corner-down-left", "Preempted"),
    "task.paused": ("wait", "pause", "Paused"),
    "task.completed": ("ok", "check", "Completed"),
    "task.failed": ("bad", "x", "Failed"),
    "task.aborted": ("wait", "ban", "Aborted"),
    "task.rejected": ("bad", "circle-alert", "Rejected"),
    "task.lost": ("bad", "unplug", "Lost"),
    "task.idle_warning": ("warn", "hourglass", "Idle warning"),
    "task.idle_warning_withdrawn": ("wait", "info", "Idle warning withdrawn"),
    "task.idle_exempted": ("wait", "info", "Exempted when idle"),
    "task.idle_exemption_ended": ("wait", "info", "Exemption when idle ended"),
}
_UNKNOWN = ("wait", "info", "")
# States from which going into a queue is a person's doing, not a return.
_INITIAL_STATES = ("", "draft", "completed", "failed", "aborted")
# What becomes of a task that was preempted.
_AFTER_PREEMPTION = {
    "queued": "queued again in its old place",
    "paused": "paused, as its queue says",
    "aborted": "aborted",
}


def timeline_entries(
    history: TaskHistory, names: ReaderNames, *, has_content: bool
) -> tuple[TimelineEntry, ...]:
    """Events and changes of the reason, newest first.

    Args:
        has_content: the reader may read what nodes reported, see `TaskPermissions.content`.
    """
    entries = [
        _from_event(event, history, names, has_content=has_content) for event in history.events
    ]
    for change in history.reasons:
        view = explain(change.data.get("reasons", ())[:1], names.in_queue(queue_of(change)))
        entries.append(TimelineEntry(change.at, "wait", view.word.icon, "Waiting", view.verdict))
    return tuple(sorted(entries, key=lambda entry: entry.at, reverse=True))


def _from_event(
    event: Event, history: TaskHistory, names: ReaderNames, *, has_content: bool
) -> TimelineEntry:
    kind, icon, title = TASK_EVENTS.get(event.kind, _UNKNOWN)
    is_return = "generation" in event.data or event.data.get("from", "") not in _INITIAL_STATES
    if event.kind == "task.queued" and not is_return:
        kind, icon, title = TASK_EVENTS["task.enqueued"]
    if event.kind == "task.draft" and not event.data.get("from"):
        kind, icon, title = TASK_EVENTS["task.created"]
    title = title or event.kind.partition(".")[2].replace("_", " ").capitalize()
    words = [_queues(event, names, is_return=is_return)]
    if has_content:
        # A sentence that goes on after a comma has no stop before it.
        words.append(str(event.data.get("detail") or event.data.get("reason") or "").rstrip("."))
    words += _details(event.data, names.in_queue(event.queue_id))
    if event.kind == "task.preempted":
        words.insert(0, _beneficiary(event.data, history, names))
    if event.actor is not None:
        words.append(f"by {event.actor}")
    return TimelineEntry(event.at, kind, icon, title, ", ".join(filter(None, words)))


def _queues(event: Event, names: ReaderNames, *, is_return: bool) -> str:
    """The queue that a task was put into, or what changed there."""
    data = event.data
    if event.kind == "task.moved":
        before, after = data.get("queue_before"), data.get("queue")
        return f"from {names.queue(before)} to {names.queue(after)}"
    if event.kind == "task.priority":
        return f"from {data.get('from')} to {data.get('to')}"
    # One that the reader does not see, or that was removed, says nothing.
    is_enqueued = event.kind == "task.queued" and not is_return
    queue = names.queues.get(event.queue_id or 0)
    return f"in {queue}" if is_enqueued and queue else ""


def _beneficiary(data: Mapping[str, Any], history: TaskHistory, names: ReaderNames) -> str:
    """The policy whose task gets the capacity; empty where that is not known any more."""
    policy = history.beneficiary_policy(data.get("generation", 0))
    if policy is None:
        return ""
    whose = names.policy(policy)
    return f"for {whose}" if names.is_other_tenants(policy) else f"for a task of {whose}"


def _details(data: Mapping[str, Any], names: ReaderNames) -> list[str]:
    words = []
    if data.get("pool") is not None:
        words.append(names.pool(data["pool"]))
    if data.get("generation"):
        words.append(f"attempt {data['generation']}")
    if data.get("tier"):
        words.append(str(data["tier"]).replace("_", " "))
    if data.get("idle_minutes"):
        words.append(f"all its GPUs idle for {plural(data['idle_minutes'], 'minute')}")
    if data.get("minutes_left"):
        words.append(f"it is stopped in {plural(data['minutes_left'], 'minute')} if it stays idle")
    words.append(_next_step(data, names))
    if data.get("exit_code") is not None:
        words.append(f"exit code {data['exit_code']}")
    return words


def _next_step(data: Mapping[str, Any], names: ReaderNames) -> str:
    """What follows an admission that waits for victims to stop, or a preemption."""
    if data.get("waits_for") and names.other_tenants:
        return "starts once work there has stopped"
    if data.get("waits_for"):
        has = "has" if data["waits_for"] == 1 else "have"
        return f"starts once {plural(data['waits_for'], 'task')} there {has} stopped"
    if data.get("is_moved"):
        return "starts again on another node of its pool"
    return _AFTER_PREEMPTION.get(str(data.get("then")), "")
