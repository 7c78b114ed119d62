"""What was just done, said once on the next page, with the way back where there is one."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from django.contrib import messages
from django.contrib.messages.storage.base import Message
from django.http import HttpRequest

UNDO = "Undo"


@dataclass(frozen=True, slots=True)
class Undo:
    """The way back: a form that posts `fields` to `address`; `label` says what it does."""

    address: str
    fields: Mapping[str, str] = field(default_factory=dict)
    label: str = UNDO


def say(request: HttpRequest, sentence: str, *, undo: Undo | None = None) -> None:
    """Say on the next page of this person that something was done."""
    # Messages carry texts only, and these are made here alone.
    undo_json = json.dumps(asdict(undo)) if undo is not None else ""
    messages.success(request, sentence, extra_tags=undo_json)


def undo_of(message: Message) -> Undo | None:
    """The way back that `say` gave a message."""
    return Undo(**json.loads(message.extra_tags)) if message.extra_tags else None
