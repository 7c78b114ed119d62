"""The live socket as a browser sees it: real consumer, real channel layer."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from channels.layers import get_channel_layer
from django.contrib.auth.models import AnonymousUser, Group
from django.test import Client
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.accounts.models import User
from apps.core.notifications import group_name
from apps.dashboard import consumers
from apps.dashboard.consumers import LiveConsumer
from apps.dashboard.middleware import MUST_ENROL
from apps.dashboard.render import card_render
from apps.policies.models import Policy
from tests.dashboard.conftest import ClientFor, Submit
from tests.people import Example
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db(transaction=True)

Scenario = Callable[["Socket"], Awaitable[None]]
WAIT_S = 5
QUIET_S = 0.8


class Socket:
    """One end of a websocket whose other end is the consumer."""

    def __init__(
        self, user: User | AnonymousUser, *, session: dict[str, bool] | None = None
    ) -> None:
        scope = {"type": "websocket", "path": "/ws/live/", "user": user, "session": session or {}}
        # asgiref has no types for its test tools.
        end: Any = ApplicationCommunicator
        self._end = end(LiveConsumer.as_asgi(), scope)

    async def open(self) -> None:
        await self._end.send_input({"type": "websocket.connect"})
        assert (await self._end.receive_output(scale_timeout(WAIT_S)))["type"] == "websocket.accept"

    async def say(self, text: str) -> None:
        await self._end.send_input({"type": "websocket.receive", "text": text})

    async def watch_card(self, card: str, version: str = "") -> None:
        await self.say(json.dumps({"type": "watch", "cards": [{"card": card, "version": version}]}))

    async def hear(self) -> dict[str, Any]:
        message = await self._end.receive_output(scale_timeout(WAIT_S))
        assert message["type"] == "websocket.send", message
        heard: dict[str, Any] = json.loads(message["text"])
        return heard

    async def closed(self) -> int:
        message = await self._end.receive_output(scale_timeout(WAIT_S))
        assert message["type"] == "websocket.close", message
        return int(message["code"])

    async def is_quiet(self) -> bool:
        return bool(await self._end.receive_nothing(QUIET_S))

    async def close(self) -> None:
        await self._end.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._end.wait(scale_timeout(WAIT_S))


async def tell(topic: str) -> None:
    layer = get_channel_layer()
    assert layer is not None
    await layer.group_send(group_name(topic), {"type": "live.changed", "topic": topic})


def play(user: User | AnonymousUser, scenario: Scenario) -> None:
    """Run a scenario with a socket of this user, and close it at the end."""

    async def whole() -> None:
        socket = Socket(user)
        await socket.open()
        await scenario(socket)
        await socket.close()

    async_to_sync(whole)()


def test_a_page_that_is_current_hears_nothing_and_an_older_one_gets_the_card(
    example: Example, alice: User
) -> None:
    rendered = card_render("policy_card", str(example.dev.pk), alice)
    assert rendered is not None
    card = f"policy_card:{example.dev.pk}"

    async def scenario(socket: Socket) -> None:
        await socket.watch_card(card, rendered.version)
        assert await socket.is_quiet()

        await socket.watch_card(card, "older")
        heard = await socket.hear()
        assert (heard["type"], heard["card"]) == ("card", card)
        assert heard["html"] == rendered.html

    play(alice, scenario)


def test_a_change_reaches_the_page_once(example: Example, alice: User) -> None:
    card = f"policy_card:{example.dev.pk}"

    async def scenario(socket: Socket) -> None:
        await socket.watch_card(card)
        assert "12 free" not in (await socket.hear())["html"]
        assert await socket.is_quiet()

        await Policy.objects.filter(pk=example.dev.pk).aupdate(name="Dev and friends")
        for _ in range(20):
            await tell(f"policy.{example.dev.pk}")
        assert "Dev and friends" in (await socket.hear())["html"]
        assert await socket.is_quiet()

    play(alice, scenario)


def test_charlie_learns_that_a_card_is_gone_and_hears_nothing_of_its_changes(
    example: Example, charlie: User
) -> None:
    card = f"policy_card:{example.dev.pk}"

    async def scenario(socket: Socket) -> None:
        await socket.watch_card(card)
        assert await socket.hear() == {"type": "gone", "card": card}

        await Policy.objects.filter(pk=example.dev.pk).aupdate(name="Secret")
        await tell(f"policy.{example.dev.pk}")
        assert await socket.is_quiet()

    play(charlie, scenario)


def test_whoever_leaves_the_group_loses_the_card_with_the_next_change(
    example: Example, alice: User, dev_group: Group
) -> None:
    card = f"policy_card:{example.dev.pk}"

    async def scenario(socket: Socket) -> None:
        await socket.watch_card(card)
        await socket.hear()

        await alice.groups.aremove(dev_group)
        await tell(f"policy.{example.dev.pk}")
        assert (await socket.hear())["type"] == "gone"

    play(alice, scenario)


def test_a_change_of_permissions_closes_the_socket(example: Example, alice: User) -> None:
    async def scenario(socket: Socket) -> None:
        await socket.watch_card("overview")
        await socket.hear()

        await tell(f"user.{alice.pk}")
        assert await socket.closed() == consumers.PERMISSIONS_CHANGED

    play(alice, scenario)


def test_nobody_without_a_session_is_served() -> None:
    async def scenario(socket: Socket) -> None:
        assert await socket.closed() == consumers.NOT_SIGNED_IN

    play(AnonymousUser(), scenario)


def test_the_sockets_of_one_person_are_bounded(
    root: User, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "MOST_SOCKETS", 2)

    async def whole() -> None:
        first, second, third, other = (Socket(one) for one in (root, root, root, alice))
        for socket in (first, second, third, other):
            await socket.open()
        assert await third.closed() == consumers.TOO_MANY
        for socket in (first, third):
            await socket.close()
        again = Socket(root)
        await again.open()
        assert await again.is_quiet()
        for socket in (second, again, other):
            await socket.close()

    async_to_sync(whole)()

    assert not consumers._open_sockets


def test_a_session_that_must_get_a_second_factor_first_is_not_served(root: User) -> None:
    async def whole() -> None:
        socket = Socket(root, session={MUST_ENROL: True})
        await socket.open()
        assert await socket.closed() == consumers.NOT_SIGNED_IN
        await socket.close()

    async_to_sync(whole)()


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"type": "watch"}',
        '{"type": "shout", "cards": []}',
        '{"type": "watch", "cards": [{"card": 7}]}',
        '{"type": "watch", "cards": [], "more": 1}',
        '{"type": "watch", "cards": []}' + " " * consumers.MOST_BYTES,
    ],
)
def test_what_is_not_our_protocol_closes_the_socket(db: None, root: User, text: str) -> None:
    async def scenario(socket: Socket) -> None:
        await socket.say(text)
        assert await socket.closed() == consumers.BAD_MESSAGE

    play(root, scenario)


def test_people_who_see_the_same_share_one_rendering(
    example: Example, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []

    def counting(name: str, key: str, user: User) -> object:
        rendered.append(name)
        return card_render(name, key, user)

    monkeypatch.setattr("apps.dashboard.consumers.card_render", counting)

    async def both() -> None:
        first, second = Socket(root), Socket(root)
        await first.open()
        await second.open()
        await first.watch_card("node_rows")
        await second.watch_card("node_rows")
        await asyncio.gather(first.hear(), second.hear())
        assert await first.is_quiet()
        rendered.clear()
        await tell("nodes")
        assert await second.is_quiet()
        await first.close()
        await second.close()

    async_to_sync(both)()

    assert rendered == ["node_rows"]


def test_a_page_whose_socket_is_down_fetches_and_learns_that_nothing_changed(
    example: Example, alice: User, client_for: ClientFor, submit: Submit
) -> None:
    client: Client = client_for(alice)
    path, key = "/live/policy_card/", {"key": str(example.dev.pk)}

    first = client.get(path, key)
    same = client.get(path, key, headers={"If-None-Match": first["ETag"]})
    submit(alice, "one more")
    later = client.get(path, key, headers={"If-None-Match": first["ETag"]})

    assert (first.status_code, same.status_code, later.status_code) == (200, 304, 200)
    assert later["ETag"] != first["ETag"]


def test_a_socket_whose_broker_is_gone_closes_so_that_the_page_asks_by_itself(
    db: None, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> None:
        raise RedisConnectionError("Connection refused.")

    monkeypatch.setattr(consumers, "BROKER_CHECK_S", 0.02)
    monkeypatch.setattr(get_channel_layer(), "send", gone)

    async def scenario(socket: Socket) -> None:
        assert await socket.closed() == consumers.BROKER_GONE

    play(root, scenario)


def test_a_broker_that_answers_keeps_the_socket_open(
    db: None, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "BROKER_CHECK_S", 0.05)

    async def scenario(socket: Socket) -> None:
        assert await socket.is_quiet()

    play(root, scenario)
