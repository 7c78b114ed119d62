"""From a card's name to its HTML, for the page, the poll and the socket alike."""

from dataclasses import dataclass
from hashlib import blake2b

from django.template.loader import render_to_string

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.cards import all_cards
from apps.dashboard.live import CARDS, Sharing, card_name, card_url

VERSION_BYTES = 8
# The registry is filled by importing the cards: the name keeps the import in use.
ALL_CARD_MODULES = all_cards.MODULES


@dataclass(frozen=True, slots=True)
class RenderedCard:
    """A card as the browser gets it; `version` changes exactly when the content does."""

    html: str
    version: str
    topics: tuple[str, ...]


def card_render(name: str, key: str, user: User) -> RenderedCard | None:
    """The card for this person; None where there is no such card or it may not be seen."""
    known = CARDS.get(name)
    context = known.load(user, key) if known is not None else None
    if known is None or context is None:
        return None
    inner = render_to_string(known.template, {"card": context, "viewer": user})
    version = blake2b(inner.encode(), digest_size=VERSION_BYTES).hexdigest()
    html = render_to_string(
        "components/live.html",
        {
            "inner": inner,
            "name": card_name(name, key),
            "url": card_url(name, key),
            "version": version,
            "announce": context.announce,
        },
    )
    return RenderedCard(html, version, context.topics)


def card_audience(name: str, user: User) -> str:
    """Who gets the same rendering: one person, all administrators, or everybody else."""
    known = CARDS.get(name)
    sharing = Sharing.NOBODY if known is None else known.sharing
    if sharing is not Sharing.NOBODY and is_admin(user):
        return "admins"
    return "members" if sharing is Sharing.ROLE else f"user.{user.pk}"
