"""Sends the request of one cell, and rolls everything back."""

import base64
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.http import HttpResponse
from django.test import Client

from tests.authorisation.answers import Answer
from tests.authorisation.bodies import body_of
from tests.authorisation.cells import Cell, address_of
from tests.authorisation.roles import ROLES, Role
from tests.authorisation.world import World

SIGN_IN_PAGES = ("/sign-in/", "/admin/login/")
_WRITE = re.compile(r'\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+"?(\w+)', re.IGNORECASE)
# Activity and credential use are noted whatever the answer is.
NOTED = {"django_session", "accounts_user", "accounts_credential", "accounts_personsession"}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, all its text, what the request said, and the tables that were written."""

    answer: Answer
    status: int
    text: str
    said: str = ""
    written: tuple[str, ...] = ()


@dataclass(slots=True)
class Requester:
    """The browser or key of each role."""

    world: World
    clients: dict[str, Client] = field(default_factory=dict)

    def client(self, role: Role) -> Client:
        if role.name not in self.clients:
            self.clients[role.name] = _client(self.world, role)
        return self.clients[role.name]

    def ask(self, cell: Cell) -> Reply:
        """The reply to a cell, rolled back."""
        body = body_of(self.world, cell) if cell.surface.changes else None
        method = "GET" if cell.surface.is_card else cell.surface.method
        return self.send(cell.role, method, address_of(self.world, cell), body)

    def send(self, role: Role, method: str, address: str, body: Any = None) -> Reply:
        """The answer to this role; `body` is JSON for REST, a form for pages."""
        client = self.client(role)
        kept = copy(client.cookies)
        written: list[str] = []
        with rolled_back(), connection.execute_wrapper(_recorder(written)):
            response = _sent(client, method, address, body)
            text = _text(response)
        client.cookies = kept
        said = f"{address} {body}"
        return Reply(_answer(response), response.status_code, text, said, tuple(written))


def requester_for(world: World) -> Requester:
    """A requester with everybody signed in, so that no cell creates a session."""
    requester = Requester(world)
    for role in ROLES:
        requester.client(role)
    return requester


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back everything within."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def credential_header(world: World, role: Role) -> str:
    """The header with which a program sends its key and secret."""
    made = world.one("secret", role.place, role.owner)
    pair = f"{made.credential.key}:{made.secret}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _client(world: World, role: Role) -> Client:
    if role.has_key:
        headers = {"Authorization": credential_header(world, role)}
        return Client(headers=headers, raise_request_exception=False)
    client = Client(raise_request_exception=False)
    if role.person:
        client.force_login(world.people[role.person])
        _said_who_they_are(client, world.people[role.person].pk)
    return client


def _said_who_they_are(client: Client, person: int) -> None:
    """As if the password had just been typed once more, which second factors ask for."""
    said = {"method": "password", "at": time.time(), "reauthenticated": True}
    session = client.session
    session["account_authentication_methods"] = [said]
    session["account_authentication_methods_user"] = str(person)
    session.save()


def _sent(client: Client, method: str, address: str, body: Any) -> Any:
    send: Callable[..., Any] = getattr(client, method.lower())
    if method in {"GET", "HEAD"}:
        return send(address)
    if address.startswith("/api/"):
        # The version that a client read before does not matter here.
        heads = {"If-Match": "*"}
        data = body if body is not None else {}
        return send(address, data, content_type="application/json", headers=heads)
    if method == "POST":
        return send(address, body or {})
    return send(address)


def _recorder(written: list[str]) -> Callable[..., Any]:
    def record(execute: Any, sql: str, params: Any, many: Any, context: Any) -> Any:
        found = _WRITE.match(sql)
        if found and found.group(1) not in NOTED:
            written.append(found.group(1))
        return execute(sql, params, many, context)

    return record


def _text(response: Any) -> str:
    """Body and headers; what streams is read to its end."""
    body = b"".join(response.streaming_content) if response.streaming else response.content
    heads = "\n".join(f"{name}: {value}" for name, value in response.items())
    cookies = str(response.cookies)
    return "\n".join([heads, cookies, body.decode("utf-8", "replace")])


_BY_STATUS = {
    401: Answer.SIGN_IN,
    403: Answer.FORBID,
    404: Answer.HIDE,
    405: Answer.METHOD,
    410: Answer.GONE,
}


def _answer(response: HttpResponse) -> Answer:
    status = response.status_code
    if status in {301, 302} and response["Location"].startswith(SIGN_IN_PAGES):
        return Answer.SIGN_IN
    if status in {301, 302} and response["Location"] == "/admin/":
        # The admin site redirects there from unknown objects.
        return Answer.HIDE
    if status >= 500 and status != 503:
        return Answer.BROKEN
    return _BY_STATUS.get(status, Answer.ALLOW)
