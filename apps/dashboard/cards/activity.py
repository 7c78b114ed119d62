"""Next to the chart of the overview: latest events, idle tasks, users who hold the most."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.urls import reverse

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.cards.bars import percent
from apps.dashboard.cards.timeline import TASK_EVENTS
from apps.dashboard.selectors.activity import (
    ActivityEvent,
    UserUsage,
    latest_events,
    top_users,
)
from apps.usage.selectors.idle_attempts import IdleAttempt, idle_attempts

MOST_EVENTS = 8
MOST_USERS = 5
MOST_IDLE = 5
_ICONS: Mapping[str, str] = {
    "node": "server",
    "pool": "server",
    "policy": "users",
    "queue": "list-ordered",
    "configuration": "workflow",
}


@dataclass(frozen=True, slots=True)
class ActivityRow:
    """What happened, and to what; `kind` is the colour of the icon."""

    at: datetime
    kind: str
    icon: str
    title: str
    name: str
    href: str
    text: str


@dataclass(frozen=True, slots=True)
class UserRow:
    """`width` is what the user holds as a part of what the first one holds."""

    usage: UserUsage
    href: str
    width: str


@dataclass(frozen=True, slots=True)
class Activity:
    events: tuple[ActivityRow, ...]
    idle: tuple[IdleAttempt, ...]
    users: tuple[UserRow, ...]
    sees_audit: bool


def load_activity(user: User) -> Activity:
    """What the person may see of each."""
    sees_all = is_admin(user)
    users = top_users(user, MOST_USERS)
    most = max((one.gpu for one in users), default=0)
    return Activity(
        idle=tuple(idle_attempts(user)[:MOST_IDLE]),
        events=tuple(_event_row(one) for one in latest_events(user, MOST_EVENTS)),
        users=tuple(
            UserRow(
                usage=one,
                href=reverse("person_detail", args=[one.owner.pk]) if sees_all else "",
                width=percent(one.gpu, most),
            )
            for one in users
        ),
        sees_audit=sees_all,
    )


def _event_row(one: ActivityEvent) -> ActivityRow:
    event, task = one.event, one.task
    by = f"by {event.actor}" if event.actor is not None else ""
    if task is not None:
        kind, icon, title = TASK_EVENTS.get(event.kind, ("wait", "info", event.kind))
        href = reverse("task_detail", args=[task.pk])
        code = event.data.get("exit_code")
        failed = f"exit code {code}" if code else ""
        words = [task.queue.policy.name if task.queue else "", failed, by]
        return ActivityRow(
            event.at, kind, icon, title, task.name, href, ", ".join(filter(None, words))
        )
    noun, _, verb = event.kind.partition(".")
    target = urlencode({"target": f"{event.object_type} {event.object_id}"})
    href = f"{reverse('audit_list')}?{target}"
    if event.kind.startswith("policy.budget_"):
        # The system records it, so that the audit log does not have it.
        by, href = event.data["note"], reverse("policy_detail", args=[event.object_id])
    return ActivityRow(
        at=event.at,
        kind="wait",
        icon=_ICONS.get(noun, "info"),
        title=f"{noun} {verb}".replace("_", " ").capitalize(),
        name=str(event.data.get("name") or event.object_id),
        href=href,
        text=by,
    )
