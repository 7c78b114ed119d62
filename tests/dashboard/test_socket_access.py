"""Sockets that programs open with a credential, through the whole of ASGI."""

import base64
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import Credential, Scope, User
from apps.accounts.services.access import access_by_header, token_make
from apps.accounts.services.credentials import credential_create, credential_revoke
from apps.accounts.services.groups import group_members_remove, group_remove
from apps.configuration.services.policies import policy_remove
from apps.configuration.services.restrictions import policy_restrict
from apps.configuration.services.rules import RuleSubjects, rule_grant, rule_remove
from apps.dashboard import consumers
from rpm.asgi import application
from tests.people import Example
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db(transaction=True)

WITHIN_S = 5
Scenario = Callable[[Any], Awaitable[None]]


def play(headers: dict[str, str], scenario: Scenario) -> None:
    """Run a scenario with a socket that was opened with these headers, and close it."""

    async def whole() -> None:
        scope = {
            "type": "websocket",
            "path": "/ws/live/",
            "client": ["198.51.100.7", 50000],
            "subprotocols": [],
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in {"Host": "localhost", **headers}.items()
            ],
        }
        end: Any = ApplicationCommunicator
        socket = end(application, scope)
        await socket.send_input({"type": "websocket.connect"})
        await scenario(socket)
        await socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await socket.wait(scale_timeout(WITHIN_S))

    async_to_sync(whole)()


async def heard(socket: Any) -> dict[str, Any]:
    message: dict[str, Any] = await socket.receive_output(scale_timeout(WITHIN_S))
    return message


async def card(socket: Any, name: str) -> dict[str, Any]:
    """What the socket answers to a wish for a card."""
    watch = {"type": "watch", "cards": [{"card": name, "version": ""}]}
    await socket.send_input({"type": "websocket.receive", "text": json.dumps(watch)})
    message: dict[str, Any] = json.loads((await heard(socket))["text"])
    return message


def basic(user: User, scope: Scope = Scope.READ) -> dict[str, str]:
    credential, secret = credential_create(user=user, label="", scope=scope)
    pair = base64.b64encode(f"{credential.key}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def bearer(user: User) -> dict[str, str]:
    access = access_by_header(basic(user)["Authorization"], address="")
    assert access is not None
    return {"Authorization": f"Bearer {token_make(access=access).text}"}


@pytest.mark.parametrize("kind", [basic, bearer])
def test_a_program_sees_what_its_person_sees(
    example: Example, alice: User, charlie: User, kind: Callable[[User], dict[str, str]]
) -> None:
    name = f"policy_card:{example.dev.pk}"

    async def insider(socket: Any) -> None:
        assert (await heard(socket))["type"] == "websocket.accept"
        assert (await card(socket, name))["type"] == "card"

    async def outsider(socket: Any) -> None:
        assert (await heard(socket))["type"] == "websocket.accept"
        assert (await card(socket, name))["type"] == "gone"

    play(kind(alice), insider)
    play(kind(charlie), outsider)


def test_revoking_closes_what_the_credential_opened(example: Example, alice: User) -> None:
    headers = basic(alice)

    async def scenario(socket: Any) -> None:
        await heard(socket)
        await card(socket, "overview")
        credential = await Credential.objects.aget()
        await sync_to_async(credential_revoke)(credential=credential, actor=alice, is_admin=False)
        assert await heard(socket) == {
            "type": "websocket.close",
            "code": consumers.PERMISSIONS_CHANGED,
        }

    play(headers, scenario)


@pytest.mark.parametrize("kind", [basic, bearer])
def test_it_closes_within_seconds_although_no_notification_came(
    example: Example, alice: User, kind: Callable[[User], dict[str, str]]
) -> None:
    """As when the credential ends by itself, or the broker lost the notification."""
    headers = kind(alice)

    async def scenario(socket: Any) -> None:
        await heard(socket)
        await card(socket, "overview")
        over = timezone.now() - timedelta(seconds=1)
        await Credential.objects.aupdate(expires_at=over)
        assert (await heard(socket))["code"] == consumers.PERMISSIONS_CHANGED

    play(headers, scenario)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Authorization": "Basic eDp5"}, id="a wrong secret"),
        pytest.param({"Authorization": "Bearer made-up"}, id="a token of nobody"),
        pytest.param({"Authorization": "Digest x"}, id="another scheme"),
    ],
)
def test_what_opens_nothing_is_answered_so(db: None, headers: dict[str, str]) -> None:
    async def scenario(socket: Any) -> None:
        await heard(socket)
        assert (await heard(socket))["code"] == consumers.NOT_SIGNED_IN

    play(headers, scenario)


def test_guessing_ends_here_too(db: None, settings: Any) -> None:
    settings.RPM_WRONG_SECRETS_PER_ADDRESS = 1
    codes = []

    async def scenario(socket: Any) -> None:
        await heard(socket)
        codes.append((await heard(socket))["code"])

    for _ in range(3):
        play({"Authorization": "Basic eDp5"}, scenario)

    assert codes[0] == consumers.NOT_SIGNED_IN
    assert codes[-1] == consumers.TOO_MANY


def test_nobody_acts_for_others_on_a_socket(alice: User) -> None:
    async def scenario(socket: Any) -> None:
        await heard(socket)
        assert (await heard(socket))["code"] == consumers.NOT_SIGNED_IN

    play({**basic(alice), "X-RPM-Act-For": "00000000-0000-7000-8000-000000000000"}, scenario)


@pytest.mark.parametrize(
    ("origin", "want"),
    [("https://evil.example", "websocket.close"), ("http://localhost", "websocket.accept")],
)
def test_a_page_of_another_origin_opens_none_with_what_a_browser_remembers(
    alice: User, origin: str, want: str
) -> None:
    async def scenario(socket: Any) -> None:
        assert (await heard(socket))["type"] == want

    play({**basic(alice), "Origin": origin}, scenario)


@pytest.mark.parametrize("loss", ["rule", "group", "membership", "restriction", "policy"])
def test_a_permission_that_goes_closes_what_it_showed(
    example: Example, root: User, bob: User, charlie: User, loss: str
) -> None:
    """A rule that is removed, or a group that it names; somebody who leaves the policy's group; a
    policy that is restricted to others, or removed.
    """
    who = charlie if loss in {"rule", "group"} else bob
    guests = Group.objects.create(name="guests")
    guests.user_set.add(charlie)
    target = Target(RuleKind.POLICY, str(example.dev.pk))
    subjects = RuleSubjects(groups=(guests,)) if loss == "group" else RuleSubjects(users=(charlie,))
    rule_grant(actor=root, target=target, level=Level.READ, subjects=subjects)
    ways: dict[str, Callable[[], Any]] = {
        "rule": lambda: rule_remove(actor=root, target=target, level=Level.READ),
        "group": lambda: group_remove(actor=root, group=guests),
        "membership": lambda: group_members_remove(
            actor=root, group=example.dev.group, users=[bob]
        ),
        "restriction": lambda: policy_restrict(actor=root, policy=example.dev, people=[]),
        "policy": lambda: policy_remove(actor=root, policy=example.dev),
    }
    headers, name = basic(who), f"policy_card:{example.dev.pk}"
    page = f"/api/v1/policies/{example.dev.pk}/"
    assert Client().get(page, headers=headers).status_code == 200

    async def scenario(socket: Any) -> None:
        await heard(socket)
        assert (await card(socket, name))["type"] == "card"
        await sync_to_async(ways[loss])()
        # The very next request, too.
        answer = await sync_to_async(Client().get)(page, headers=headers)
        assert answer.status_code == 404
        while (message := await heard(socket))["type"] != "websocket.close":
            assert json.loads(message["text"])["type"] in {"card", "gone"}
        assert message["code"] == consumers.PERMISSIONS_CHANGED

    async def afterwards(socket: Any) -> None:
        await heard(socket)
        assert (await card(socket, name))["type"] == "gone"

    play(headers, scenario)
    play(headers, afterwards)


def test_a_session_that_is_ended_elsewhere_closes_what_it_opened(alice: User) -> None:
    here, there = Client(), Client()
    for browser in (here, there):
        browser.force_login(alice)
    key = str(here.session.session_key)
    headers = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={key}", "Origin": "http://localhost"}

    async def scenario(socket: Any) -> None:
        assert (await heard(socket))["type"] == "websocket.accept"
        await card(socket, "overview")
        await sync_to_async(there.post)(reverse("account"), {"form": "sessions"})
        assert await heard(socket) == {
            "type": "websocket.close",
            "code": consumers.PERMISSIONS_CHANGED,
        }

    async def afterwards(socket: Any) -> None:
        await heard(socket)
        assert (await heard(socket))["code"] == consumers.NOT_SIGNED_IN

    play(headers, scenario)
    play(headers, afterwards)
