"""Asking for cards at the live socket, with the real consumer."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.db.backends.base.base import BaseDatabaseWrapper

from apps.accounts.services.access import Access, access_by_header
from apps.dashboard import consumers
from apps.dashboard.consumers import LiveConsumer
from tests.authorisation.answers import Answer
from tests.authorisation.asking import Asker, Reply, credential_header, undone
from tests.authorisation.cells import Cell, cells_of, key_of
from tests.authorisation.judging import judged
from tests.authorisation.knowing import may_know
from tests.authorisation.roles import Role
from tests.authorisation.surfaces import surfaces
from tests.authorisation.world import World
from tests.services.patience import patient

# How long a card may take on a machine that has much else to do.
WAIT_S = 30.0


@dataclass(slots=True)
class Heard:
    """What a socket was told of each card, and which topics it joined."""

    closed: int | None = None
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)


def socket_findings(asker: Asker, role: Role) -> Iterator[str]:
    """What is wrong with what the socket tells this role."""
    cells = {name_of(asker.world, cell): cell for cell in watched(asker.world, role)}
    heard = listen(asker, role, list(cells))
    for name, cell in cells.items():
        yield from judged(asker.world.marks, cell, _reply(heard, name))
    for topic in sorted(heard.topics):
        for mark in asker.world.marks.found(topic).values():
            if not may_know(role, mark):
                yield f"{role} follows {topic}, {mark.kind} of {mark.place}{mark.owner}"


def watched(world: World, role: Role) -> list[Cell]:
    rows = [one for one in surfaces() if one.method == "WATCH"]
    return [cell for one in rows for cell in cells_of(world, role, one)]


def name_of(world: World, cell: Cell) -> str:
    """What the socket calls the card of a cell."""
    name = cell.surface.address.removeprefix("card:")
    return f"{name}:{key_of(world, cell)}" if cell.kind else name


def _reply(heard: Heard, name: str) -> Reply:
    if heard.closed == consumers.NOT_SIGNED_IN:
        return Reply(Answer.SIGN_IN, heard.closed, "", name)
    told = heard.cards.get(name)
    if told is None:
        return Reply(Answer.BROKEN, 0, "", name)
    answer = Answer.HIDE if told["type"] == "gone" else Answer.ALLOW
    return Reply(answer, 0, json.dumps(told), name)


def listen(asker: Asker, role: Role, names: list[str]) -> Heard:
    """Ask for all these cards, a page's worth at a time."""
    heard = Heard()
    size = consumers.MOST_CARDS
    with pytest.MonkeyPatch.context() as patches, undone():
        patches.setattr(consumers, "COALESCE_S", 0.0)
        # The world lies in a transaction that is still open.
        patches.setattr(BaseDatabaseWrapper, "close_if_unusable_or_obsolete", lambda _: None)
        patches.setattr(consumers, "ACCESS_CHECK_S", 10 * WAIT_S)
        _overhear(patches, heard)
        for start in range(0, len(names), size):
            async_to_sync(_ask)(_scope(asker, role), names[start : start + size], heard)
    return heard


def _overhear(patches: pytest.MonkeyPatch, heard: Heard) -> None:
    """Note which topics are joined."""
    join = LiveConsumer._join

    async def joined(consumer: LiveConsumer, topic: str) -> None:
        heard.topics.add(topic)
        await join(consumer, topic)

    patches.setattr(LiveConsumer, "_join", joined)


def _scope(asker: Asker, role: Role) -> dict[str, Any]:
    """As the middleware of sessions, or of credentials, would have made it."""
    user = asker.world.people.get(role.person)
    path = "/ws/live/"
    scope: dict[str, Any] = {"type": "websocket", "path": path, "user": user, "session": {}}
    if role.has_key:
        access = access_by_header(credential_header(asker.world, role), address="")
        assert isinstance(access, Access)
        scope |= {"user": access.user, "access": access}
    return scope


async def _ask(scope: dict[str, Any], names: list[str], heard: Heard) -> None:
    # asgiref has no types for its test tools.
    make: Any = ApplicationCommunicator
    end = make(LiveConsumer.as_asgi(), scope)
    await end.send_input({"type": "websocket.connect"})
    assert (await end.receive_output(patient(WAIT_S)))["type"] == "websocket.accept"
    watch = {"type": "watch", "cards": [{"card": name} for name in names]}
    await end.send_input({"type": "websocket.receive", "text": json.dumps(watch)})
    missing = set(names)
    while missing:
        message = await end.receive_output(patient(WAIT_S))
        if message["type"] == "websocket.close":
            heard.closed = int(message["code"])
            break
        told = json.loads(message["text"])
        heard.cards[told["card"]] = told
        missing.discard(told["card"])
    # What is looked at again, since it changed between reading and joining.
    await asyncio.sleep(0)
    await end.send_input({"type": "websocket.disconnect", "code": 1000})
    await end.wait(patient(WAIT_S))
