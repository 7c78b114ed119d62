"""Cards: the parts of a page that change by themselves.

One registry for three transports of a card to the browser: the page includes it, the
fall-back poll fetches it, the socket pushes it. All three render the same template with the same
context, after the same permission check.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import urlencode

from django.urls import reverse

from apps.accounts.models import User


class CardContext(Protocol):
    """What a card's template shows.

    `topics` are the names whose change makes the card stale; `announce` is what a screen reader
    hears after a change, or empty.
    """

    @property
    def topics(self) -> tuple[str, ...]: ...

    @property
    def announce(self) -> str: ...


# Loads the context for a person; None where the person may not see it.
Load = Callable[[User, str], CardContext | None]


class Sharing(StrEnum):
    """Users who see the same card: all with a role, administrators only, or each their own."""

    ROLE = "role"
    ADMINS = "admins"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Card:
    """A part of a page, and who gets the same rendering of it."""

    name: str
    template: str
    load: Load
    sharing: Sharing


CARDS: dict[str, Card] = {}
MOST_DIGITS = 19


def card(name: str, sharing: Sharing) -> Callable[[Load], Load]:
    """Register the loader of the card `name`; its template is `cards/<name>.html`."""

    def register(load: Load) -> Load:
        CARDS[name] = Card(name, f"cards/{name}.html", load, sharing)
        return load

    return register


def card_name(name: str, key: str) -> str:
    """What browser and socket call the card."""
    return f"{name}:{key}" if key else name


def card_from_name(full: str) -> tuple[str, str]:
    """Name and key of `card_name`."""
    name, _, key = full.partition(":")
    return name, key


def card_url(name: str, key: str) -> str:
    """Where the browser fetches the card when the socket is down."""
    address = reverse("card", args=[name])
    return f"{address}?{urlencode({'key': key})}" if key else address


def key_id(key: str) -> int:
    """The id that a card's key names; 0, which no row has, for anything else."""
    # Digits of other scripts, and more of them than Python turns into a number, are no ids.
    return int(key) if key.isascii() and key.isdigit() and len(key) < MOST_DIGITS else 0


def day_of(text: str) -> date | None:
    """The day that an address names, such as `2026-03-01`; none for anything else."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    # The day after must be one, too.
    return day if 1970 <= day.year < 9999 else None


def topics_of(kind: str, ids: Iterable[Any]) -> tuple[str, ...]:
    """Topics such as `queue.3`."""
    return tuple(f"{kind}.{one}" for one in ids)
