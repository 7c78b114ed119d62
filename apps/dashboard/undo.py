"""Undoes only what the message named: one pause, drain, move or switch."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest

from apps.accounts.models import User
from apps.core.errors import Stale
from apps.dashboard.live import key_id
from apps.dashboard.toasts import UNDO, Undo
from apps.events.selectors import last_event

UNDOES = "undoes"

_Row = TypeVar("_Row")


def undo_event(
    kind: str,
    row: Model,
    *,
    actor: User,
    address: str,
    fields: Mapping[str, str] | None = None,
    label: str = UNDO,
) -> Undo:
    """The undo of what the actor did just now.

    Args:
        kind: of its event, such as `node.paused`.
        address: ends it, with `fields`.
    """
    event = last_event(kind, row.pk, actor=actor)
    undoes = str(event.pk if event is not None else 0)
    return Undo(address, {**(fields or {}), UNDOES: undoes}, label)


def change_unless_stale(request: HttpRequest, change: Callable[[int | None], _Row]) -> _Row | None:
    """Call `change` with the event that the form undoes; None, and a message, if it is too late."""
    undoes = request.POST.get(UNDOES)
    try:
        return change(None if undoes is None else key_id(undoes))
    except Stale as error:
        messages.error(request, error.detail)
        return None
