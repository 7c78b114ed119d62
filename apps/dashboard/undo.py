"""Undoes a pause or a drain: only the one that the message named."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest

from apps.accounts.models import User
from apps.core.errors import Stale
from apps.dashboard.live import key_id
from apps.dashboard.toasts import Undo
from apps.events.selectors import last_event

UNDOES = "undoes"

_Row = TypeVar("_Row")


def undo_event(
    kind: str, row: Model, *, actor: User, address: str, fields: Mapping[str, str] | None = None
) -> Undo:
    """The undo of what the actor did just now.

    Args:
        kind: of its event, such as `node.paused`.
        address: ends it, with `fields`.
    """
    event = last_event(kind, row.pk, actor=actor)
    return Undo(address, {**(fields or {}), UNDOES: str(event.pk if event is not None else 0)})


def undo_or_resume(request: HttpRequest, resume: Callable[[int | None], _Row]) -> _Row | None:
    """Call `resume` with the event that the form undoes; None, and a message, if it is too late."""
    undoes = request.POST.get(UNDOES)
    try:
        return resume(None if undoes is None else key_id(undoes))
    except Stale as error:
        messages.error(request, error.detail)
        return None
