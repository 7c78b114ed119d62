"""Requests cards at the live socket, with the real consumer."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.db.backends.base.base import BaseDatabaseWrapper

from apps.accounts.services.access import CredentialAccess, access_by_header
from apps.dashboard import consumers
from apps.dashboard.consumers import LiveConsumer
from tests.authorisation.answers import Answer
from tests.authorisation.cells import Cell, cells_of, key_of
from tests.authorisation.findings import reply_findings
from tests.authorisation.requester import Reply, Requester, credential_header, rolled_back
from tests.authorisation.roles import Role
from tests.authorisation.surfaces import surfaces
from tests.authorisation.visibility import may_know
from tests.authorisation.world import World
from tests.services.timeouts import scale_timeout

# How long a card may take on a machine that has much else to do.
WAIT_S = 30.0


@dataclass(slots=True)
class SocketRecord:
    """What a socket received of each card, and which topics it joined."""

    closed: int | None = None
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


def socket_findings(requester: Requester, role: Role) -> Iterator[str]:
    """What is wrong with the socket's messages to this role."""
    cells = {name_of(requester.world, cell): cell for cell in watched(requester.world, role)}
    record = listen(requester, role, list(cells))
    for name, cell in cells.items():
        yield from reply_findings(requester.world.marks, cell, _reply(record, name))
    for topic in sorted(record.topics):
        for mark in requester.world.marks.found(topic).values():
            if not may_know(role, mark):
                yield f"{role} follows {topic}, {mark.kind} of {mark.place}{mark.owner}"


def watched(world: World, role: Role) -> list[Cell]:
    rows = [one for one in surfaces() if one.method == "WATCH"]
    return [cell for one in rows for cell in cells_of(world, role, one)]


def name_of(world: World, cell: Cell) -> str:
    """The socket's name of the card of a cell."""
    name = cell.surface.address.removeprefix("card:")
    return f"{name}:{key_of(world, cell)}" if cell.kind else name


def _reply(record: SocketRecord, name: str) -> Reply:
    if record.closed == consumers.NOT_SIGNED_IN:
        return Reply(Answer.SIGN_IN, record.closed, "", name)
    card = record.cards.get(name)
    if card is None:
        return Reply(Answer.BROKEN, 0, "", name)
    answer = Answer.HIDE if card["type"] == "gone" else Answer.ALLOW
    return Reply(answer, 0, json.dumps(card), name)


def listen(requester: Requester, role: Role, names: list[str]) -> SocketRecord:
    """Request all these cards, as many at a time as a page has."""
    record = SocketRecord()
    size = consumers.MOST_CARDS
    with pytest.MonkeyPatch.context() as patches, rolled_back():
        patches.setattr(consumers, "COALESCE_S", 0.0)
        # The world lies in a transaction that is still open.
        patches.setattr(BaseDatabaseWrapper, "close_if_unusable_or_obsolete", lambda _: None)
        patches.setattr(consumers, "ACCESS_CHECK_S", 10 * WAIT_S)
        _overhear(patches, record)
        for start in range(0, len(names), size):
            async_to_sync(_ask)(_scope(requester, role), names[start : start + size], record)
    return record


def _overhear(patches: pytest.MonkeyPatch, record: SocketRecord) -> None:
    """Note which topics are joined."""
    join = LiveConsumer._join

    async def joined(consumer: LiveConsumer, topic: str) -> None:
        record.topics.add(topic)
        await join(consumer, topic)

    patches.setattr(LiveConsumer, "_join", joined)


def _scope(requester: Requester, role: Role) -> dict[str, Any]:
    """As the middleware of sessions, or of credentials, would have made it."""
    user = requester.world.people.get(role.person)
    path = "/ws/live/"
    scope: dict[str, Any] = {"type": "websocket", "path": path, "user": user, "session": {}}
    if role.has_key:
        access = access_by_header(credential_header(requester.world, role), address="")
        assert isinstance(access, CredentialAccess)
        scope |= {"user": access.user, "access": access}
    return scope


async def _ask(scope: dict[str, Any], names: list[str], record: SocketRecord) -> None:
    # asgiref has no types for its test tools.
    make: Any = ApplicationCommunicator
    end = make(LiveConsumer.as_asgi(), scope)
    await end.send_input({"type": "websocket.connect"})
    assert (await end.receive_output(scale_timeout(WAIT_S)))["type"] == "websocket.accept"
    watch = {"type": "watch", "cards": [{"card": name} for name in names]}
    await end.send_input({"type": "websocket.receive", "text": json.dumps(watch)})
    missing = set(names)
    while missing:
        message = await end.receive_output(scale_timeout(WAIT_S))
        if message["type"] == "websocket.close":
            record.closed = int(message["code"])
            break
        card = json.loads(message["text"])
        record.cards[card["card"]] = card
        missing.discard(card["card"])
    # What is looked at again, since it changed between reading and joining.
    await asyncio.sleep(0)
    await end.send_input({"type": "websocket.disconnect", "code": 1000})
    await end.wait(scale_timeout(WAIT_S))
