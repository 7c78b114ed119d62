"""REST with and without the fast path in front of Django."""

import base64
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connection

from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.tasks.api import fast_path
from apps.tasks.models import Task
from apps.tasks.services.enqueue.fast_path import fast_path_cache
from tests.people import Example
from tests.tasks.api.test_tasks import wanted


@dataclass
class CountingDjango:
    """Django behind the fast path; `calls` counts the requests that it gets."""

    calls: int = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.calls += 1
        return WSGIHandler()(environ, start_response)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    data: Any
    is_fast: bool


Send = Callable[..., Reply]


@pytest.fixture
def send() -> Iterator[Send]:
    """POST to the application with a credential, in front of Django or (`fast=False`) in it."""
    fast_path_cache.clear()
    # As Django's own test client: the connection holds the test's transaction.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    django = CountingDjango()
    application = fast_path.with_fast_path(django)

    def post(header: str, body: Any, *, fast: bool = True, **extra: str) -> Reply:
        text = body if isinstance(body, str) else json.dumps(body)
        content = text.encode("latin1" if text.startswith("\xff") else "utf-8")
        started: dict[str, Any] = {}

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            started.update(status=int(status[:3]), headers=dict(headers))

        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/api/v1/tasks/",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_HOST": "localhost",
            "HTTP_AUTHORIZATION": header,
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": io.BytesIO(content),
            "wsgi.url_scheme": "http",
            "wsgi.errors": io.StringIO(),
            **extra,
        }
        before = django.calls
        answer = b"".join((application if fast else django)(environ, start_response))
        return Reply(
            started["status"], started["headers"], json.loads(answer), django.calls == before
        )

    yield post
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)
    fast_path_cache.clear()


@pytest.fixture
def header(alice: User) -> str:
    return basic(alice)


def basic(user: User) -> str:
    credential, secret = credential_create(user=user, label="test")
    return "Basic " + base64.b64encode(f"{credential.key}:{secret}".encode()).decode()


@pytest.fixture
def warm(send: Send, header: str, example: Example) -> Send:
    """The same, once everything about the queue of `wanted` is cached."""
    if connection.vendor != "postgresql":
        pytest.skip("the fast path needs PostgreSQL")
    send(header, wanted(example))
    assert send(header, wanted(example)).is_fast
    Task.objects.all().delete()
    return send
