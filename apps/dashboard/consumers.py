"""The live socket: pushes a page's cards when what they show has changed."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Generic, TypeVar

import msgspec
import structlog
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from redis.exceptions import RedisError

from apps.accounts.models import User
from apps.accounts.services.access import CredentialAccess, access_holds
from apps.core.notifications import group_name
from apps.dashboard.live import card_from_name
from apps.dashboard.middleware import MUST_ENROL
from apps.dashboard.render import RenderedCard, card_audience, card_render

# One push per card and this time, however much happens.
COALESCE_S = 0.25
# What changes after a quiet time is pushed almost at once, with what comes in the same moment: a
# task and the pass that it requests.
FIRST_S = 0.05
# How often the broker is tried, and how long it may take.
BROKER_CHECK_S = 5.0
MOST_CARDS = 64
MOST_BYTES = 64 * 1024
MOST_SHARED = 512
# Of one person in one process; their other pages ask by themselves.
MOST_SOCKETS = 20
# How often the credential of a socket is checked: notifications of its end may be lost.
ACCESS_CHECK_S = 2.0
# Close codes: 4401 not signed in, 4403 permissions have changed, 4400 not our protocol, 4429 too
# many wrong credentials or sockets, 1013 later.
NOT_SIGNED_IN = 4401
TOO_MANY = 4429
PERMISSIONS_CHANGED = 4403
BAD_MESSAGE = 4400
BROKER_GONE = 1013

log = structlog.get_logger(__name__)

T = TypeVar("T")


class WatchedCard(msgspec.Struct, forbid_unknown_fields=True):
    """A card on the page, and the version that the page has."""

    card: str
    version: str = ""


class WatchMessage(msgspec.Struct, tag="watch", tag_field="type", forbid_unknown_fields=True):
    """The cards of the page; replaces what was said before."""

    cards: list[WatchedCard]


@dataclass(slots=True)
class _ResultCache(Generic[T]):
    """What is worked out once for all sockets of this process.

    An entry serves everybody whose notice came before the work on it began.
    """

    entries: dict[Hashable, tuple[float, T]] = field(default_factory=dict)
    locks: dict[Hashable, asyncio.Lock] = field(default_factory=dict)

    async def get(self, key: Hashable, noticed: float, compute: Callable[[], T]) -> T:
        lock = self.locks.setdefault(key, asyncio.Lock())
        async with lock:
            known = self.entries.get(key)
            if known is not None and known[0] >= noticed:
                return known[1]
            began = monotonic()
            found = await database_sync_to_async(compute)()
            self.entries[key] = (began, found)
            self._forget()
            return found

    def _forget(self) -> None:
        """Keep what is young; the rest would only be worked out again."""
        if len(self.entries) <= MOST_SHARED:
            return
        limit = monotonic() - 2 * COALESCE_S
        self.entries = {key: one for key, one in self.entries.items() if one[0] >= limit}
        self.locks = {key: lock for key, lock in self.locks.items() if key in self.entries}


# Many pages of one user ask the same at the same moment, and a process queries the database in
# one thread: each of these results is shared by all of them.
_people: _ResultCache[User | None] = _ResultCache()
_open_sockets: Counter[int] = Counter()
_audiences: _ResultCache[str] = _ResultCache()
_renderings: _ResultCache[RenderedCard | None] = _ResultCache()


def _person(person_id: int) -> User | None:
    return User.objects.filter(pk=person_id, is_active=True).first()


async def _render(card: str, user: User, noticed: float) -> RenderedCard | None:
    """The card for this person; one rendering for everybody who sees the same."""
    name, argument = card_from_name(card)
    audience = await _audiences.get((name, user.pk), noticed, partial(card_audience, name, user))
    compute = partial(card_render, name, argument, user)
    return await _renderings.get((card, audience), noticed, compute)


class LiveConsumer(AsyncWebsocketConsumer):
    """Joins the topics of the cards that its user may see, and pushes what changed.

    Every rendering checks permissions again: for a card that may no longer be seen, the socket
    sends only `gone`. When the permissions of the user change, it closes and the page reloads.
    """

    async def connect(self) -> None:
        self.versions: dict[str, str] = {}
        self.topics_of: dict[str, tuple[str, ...]] = {}
        self.joined: set[str] = set()
        self.stale: dict[str, float] = {}
        self.flusher: asyncio.Task[None] | None = None
        self.checker: asyncio.Task[None] | None = None
        self.access_checker: asyncio.Task[None] | None = None
        self.is_counted = False
        self.person_id: int | None = getattr(self.scope.get("user"), "pk", None)
        # How a program came in; None for the session of a browser.
        access = self.scope.get("access")
        await self.accept()
        if self.person_id is None or await database_sync_to_async(self._must_enrol)():
            await self.close(code=TOO_MANY if self.scope.get("is_too_many") else NOT_SIGNED_IN)
            return
        if _open_sockets[self.person_id] >= MOST_SOCKETS:
            await self.close(code=TOO_MANY)
            return
        self.is_counted = True
        _open_sockets[self.person_id] += 1
        self.ending = {f"user.{self.person_id}"}
        if isinstance(access, CredentialAccess):
            self.ending.add(f"credential.{access.credential_id}")
            self.access_checker = asyncio.create_task(self._check_access(access))
        for topic in self.ending:
            await self._join(topic)
        self.checker = asyncio.create_task(self._check_broker())

    def _must_enrol(self) -> bool:
        """Whether the session is restricted until its user has a second factor."""
        session = self.scope.get("session")
        return bool(session is not None and session.get(MUST_ENROL))

    async def disconnect(self, _code: int) -> None:
        if self.is_counted and self.person_id is not None:
            _open_sockets[self.person_id] -= 1
            # Entries of people without a socket go.
            if not _open_sockets[self.person_id]:
                del _open_sockets[self.person_id]
        for background in (self.flusher, self.checker, self.access_checker):
            if background is not None:
                background.cancel()
        for topic in self.joined:
            await self.channel_layer.group_discard(group_name(topic), self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if text_data is None or bytes_data is not None or len(text_data) > MOST_BYTES:
            await self.close(code=BAD_MESSAGE)
            return
        try:
            watch = msgspec.json.decode(text_data, type=WatchMessage)
        except msgspec.MsgspecError:
            await self.close(code=BAD_MESSAGE)
            return
        wanted = {one.card: one.version for one in watch.cards[:MOST_CARDS]}
        self.versions = wanted
        self.topics_of = {card: self.topics_of.get(card, ()) for card in wanted}
        # What the page shows may be older than the join: render each once, now.
        self._mark(list(wanted), noticed=monotonic(), soon=True)

    async def live_changed(self, event: dict[str, Any]) -> None:
        """A topic of ours changed: its cards are stale."""
        topic = event["topic"]
        if topic in self.ending:
            await self.close(code=PERMISSIONS_CHANGED)
            return
        cards = [card for card, topics in self.topics_of.items() if topic in topics]
        self._mark(cards, noticed=monotonic(), soon=False)

    async def live_alive(self, _event: dict[str, Any]) -> None:
        """What `_check_broker` sends to itself."""

    async def _check_broker(self) -> None:
        """Close when the broker is gone, so that the page asks by itself until it is back.

        The layer only logs a lost connection, tries again, and never tells what it missed.
        """
        while True:
            await asyncio.sleep(BROKER_CHECK_S)
            try:
                async with asyncio.timeout(BROKER_CHECK_S):
                    await self.channel_layer.send(self.channel_name, {"type": "live.alive"})
            except (RedisError, OSError) as error:
                log.warning("live.broker_gone", error=str(error))
                await self.close(code=BROKER_GONE)
                return

    async def _check_access(self, access: CredentialAccess) -> None:
        """Close when the credential is revoked or over, or the token that was made of it."""
        while True:
            await asyncio.sleep(ACCESS_CHECK_S)
            if not await database_sync_to_async(access_holds)(access):
                await self.close(code=PERMISSIONS_CHANGED)
                return

    def _mark(self, cards: list[str], *, noticed: float, soon: bool) -> None:
        self.stale.update(dict.fromkeys(cards, noticed))
        if self.stale and (self.flusher is None or self.flusher.done()):
            self.flusher = asyncio.create_task(self._flush(0.0 if soon else FIRST_S))

    async def _flush(self, wait_s: float) -> None:
        """Push the stale cards until none is left, once per coalescing time."""
        await asyncio.sleep(wait_s)
        while self.stale:
            stale, self.stale = self.stale, {}
            latest = max(stale.values())
            person_id = self.person_id or 0
            user = await _people.get(person_id, latest, partial(_person, person_id))
            if user is None:
                await self.close(code=NOT_SIGNED_IN)
                return
            for card, noticed in stale.items():
                await self._push(card, user, noticed)
            await asyncio.sleep(COALESCE_S)

    async def _push(self, card: str, user: User, noticed: float) -> None:
        try:
            rendered = await _render(card, user, noticed)
        except Exception:
            # The page keeps what it has; the next change, or a reload, tries again.
            log.exception("live.card_failed", card=card)
            return
        if card not in self.versions:
            return
        if rendered is None:
            self.versions.pop(card)
            self.topics_of.pop(card, None)
            await self._send({"type": "gone", "card": card})
            return
        await self._follow(card, rendered.topics)
        if self.versions.get(card) == rendered.version:
            return
        self.versions[card] = rendered.version
        await self._send({"type": "card", "card": card, "html": rendered.html})

    async def _follow(self, card: str, topics: tuple[str, ...]) -> None:
        """Join the topics that the card now depends on; render it again if it joined a new one."""
        new = [topic for topic in topics if topic not in self.joined]
        self.topics_of[card] = topics
        for topic in new:
            await self._join(topic)
        if new:
            self.stale[card] = monotonic()

    async def _join(self, topic: str) -> None:
        self.joined.add(topic)
        await self.channel_layer.group_add(group_name(topic), self.channel_name)

    async def _send(self, message: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(message))
