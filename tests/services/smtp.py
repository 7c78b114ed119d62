"""A real SMTP server on loopback."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from pytest_django import Settings

from tests.services.ports import free_port

REFUSED = "refused@example.org"


@dataclass
class Inbox:
    """What the server took. It has no place for `REFUSED`, and one password."""

    port: int
    messages: list[EmailMessage] = field(default_factory=list)

    async def handle_RCPT(  # noqa: N802  # the server's
        self,
        _server: SMTP,
        _session: Session,
        envelope: Envelope,
        address: str,
        _options: list[str],
    ) -> str:
        if address == REFUSED:
            return "550 5.1.1 There is nobody of this name here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802  # the server's
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        content = envelope.content
        assert isinstance(content, bytes)
        self.messages.append(message_from_bytes(content, policy=policy.default))
        return "250 OK"


@contextmanager
def smtp_server(*, hostname: str = "127.0.0.1") -> Iterator[Inbox]:
    """One that asks for name `rpm` and password `right`."""

    def allows(*given: object) -> AuthResult:
        login = given[-1]
        assert isinstance(login, LoginPassword)
        return AuthResult(success=login.password == b"right", handled=False)

    inbox = Inbox(free_port())
    controller = Controller(
        inbox,
        hostname=hostname,
        port=inbox.port,
        authenticator=allows,
        auth_required=True,
        auth_require_tls=False,
    )
    controller.start()
    try:
        yield inbox
    finally:
        controller.stop()


@pytest.fixture
def inbox(settings: Settings) -> Iterator[Inbox]:
    """The server, as that of this installation."""
    with smtp_server() as server:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        settings.EMAIL_HOST_USER, settings.EMAIL_HOST_PASSWORD = "rpm", "right"
        settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
        settings.DEFAULT_FROM_EMAIL = "rpm@example.org"
        yield server
