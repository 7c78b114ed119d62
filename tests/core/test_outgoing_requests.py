"""Requests of the installation itself reach only what they may reach."""

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests
from pytest_django import Settings

from apps.core import outgoing_requests
from apps.core.outgoing_requests import (
    RequestRefused,
    address_problem,
    checked_addresses,
    outgoing_session,
)
from tests.services.timeouts import scale_timeout


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/headers":
            self._drip(b"HTTP/1.1 200 OK\r\nX-Long: ")
            return
        if self.path == "/away":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe")
            return
        if self.path.startswith("/round/"):
            time.sleep(0.1)
            self.send_response(302)
            self.send_header("Location", f"{self.path}x")
            self.end_headers()
            return
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
            return
        self.send_response(200)
        if self.path in {"/bomb", "/unpacked"}:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self._write()

    def _write(self) -> None:
        if self.path == "/bomb":
            self.wfile.write(gzip.compress(b"0" * 50_000_000))
        elif self.path == "/slow":
            self._drip(b"")
        else:
            self.wfile.write(b"here")

    def _drip(self, begin: bytes) -> None:
        """A byte now and then, for ever."""
        try:
            self.wfile.write(begin)
            while True:
                self.wfile.write(b"x")
                time.sleep(0.02)
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        """Nothing: what matters is asserted."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()


@pytest.fixture
def loopback(settings: Settings) -> None:
    settings.RPM_IDENTITY_ALLOW_LOOPBACK = True


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "10.1.2.3",
        "192.168.1.1",
        "172.16.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "fd00:ec2::254",
        "fe80::1%eth0",
        "0.0.0.0",
        "224.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "240.0.0.1",
        "fec0::1",
        "192.88.99.1",
        "192.0.0.8",
        "192.0.0.9",
        "168.63.129.16",
        "2002:a83f:8110::1",
        "192.52.193.1",
        "64:ff9b:1::a00:1",
        "2001:0:5db8:d822::1",
        "2606:4700::5efe:a00:1",
        "2606:4700::200:5efe:a00:1",
        "2001:20::1",
        "2620:4f:8000::1",
        "3fff::1",
        "5f00::1",
        "::10.0.0.1",
    ],
)
def test_addresses_inside_are_not_asked(address: str) -> None:
    with pytest.raises(RequestRefused, match="which is not asked"):
        checked_addresses("login.example.com", ["93.184.216.34", address])


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700:10::6814:1", "2a00:1450::1"])
def test_public_addresses_are_asked(address: str) -> None:
    assert checked_addresses("login.example.com", [address]) == [address]


def test_a_private_network_is_asked_by_the_names_that_the_operator_gave(
    settings: Settings,
) -> None:
    settings.RPM_IDENTITY_HOSTS = ["Keycloak.corp"]

    assert checked_addresses("keycloak.corp", ["10.1.2.3"]) == ["10.1.2.3"]
    for host, address in (
        ("other.corp", "10.1.2.3"),
        ("keycloak.corp", "169.254.169.254"),
        ("keycloak.corp", "168.63.129.16"),
        ("keycloak.corp", "2002:a9fe:a9fe::1"),
    ):
        with pytest.raises(RequestRefused):
            checked_addresses(host, [address])


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("https://login.example.com/x", ""),
        ("http://login.example.com/x", "must begin with https://"),
        ("http://127.0.0.1/x", "must begin with https://"),
        ("file:///etc/passwd", "is no address"),
        ("https://user@login.example.com/", "is no address"),
        ("https://login.example.com:99999/", "is no address"),
        ("nonsense", "is no address"),
    ],
)
def test_an_address_is_judged_where_it_is_typed(url: str, want: str) -> None:
    assert address_problem(url).startswith(want)
    assert bool(address_problem(url)) == bool(want)


def test_without_the_switch_this_machine_is_not_asked(server: str) -> None:
    with outgoing_session() as session, pytest.raises(RequestRefused):
        session.get(server)


def test_with_the_switch_it_is(loopback: None, server: str) -> None:
    with outgoing_session() as session:
        assert session.get(server).text == "here"
        assert session.get(f"{server}/to//there").text == "here"


def test_what_was_checked_is_what_is_asked(
    loopback: None, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is looked up twice could be two machines: it is looked up once."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != "rebinding.example":
            return real(host, *args, **kwargs)
        asked.append(host)
        address = "93.184.216.34" if len(asked) > 1 else "127.0.0.1"
        return real(address, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(outgoing_requests, "_may_be_plain", lambda _host: True)
    with outgoing_session() as session:
        port = server.rpartition(":")[2]

        assert session.get(f"http://rebinding.example:{port}/").text == "here"
    assert asked == ["rebinding.example"]


def test_a_redirect_elsewhere_is_not_followed(loopback: None, server: str) -> None:
    port = server.rpartition(":")[2]
    elsewhere = (f"http://localhost:{port}/", "http://169.254.169.254/", "file:///etc/passwd")
    with outgoing_session() as session:
        for target in elsewhere:
            with pytest.raises(requests.RequestException):
                session.get(f"{server}/to/{target}")


def test_an_answer_without_an_end_is_given_up(
    loopback: None, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with outgoing_session() as session:
        with pytest.raises(RequestRefused, match="more than"):
            session.get(f"{server}/bomb")
        monkeypatch.setattr(outgoing_requests, "ALL_S", 0.2)
        for path in ("slow", "headers", "round/"):
            began = time.monotonic()
            with pytest.raises(RequestRefused, match="takes longer"):
                session.get(f"{server}/{path}")
            assert time.monotonic() - began < scale_timeout(2), path


def test_an_answer_that_breaks_off_or_is_no_gzip_is_refused(loopback: None, server: str) -> None:
    with outgoing_session() as session:
        for path in ("away", "unpacked"):
            with pytest.raises(RequestRefused, match="breaks off"):
                session.get(f"{server}/{path}")


@pytest.mark.parametrize("url", ["https://a.example/\ud800", f"https://{'a' * 70}.example/"])
def test_what_cannot_be_looked_up_is_no_fault(url: str) -> None:
    with outgoing_session() as session, pytest.raises(requests.RequestException):
        session.get(url)


def test_no_proxy_of_the_environment_is_used(
    loopback: None, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    with outgoing_session() as session:
        assert session.get(server).text == "here"


def test_a_private_certificate_authority_is_trusted_where_it_is_named(settings: Settings) -> None:
    settings.RPM_CA_FILE = ""
    assert outgoing_session().verify is True

    settings.RPM_CA_FILE = "/etc/ssl/certs/ca-certificates.crt"

    assert outgoing_session().verify == "/etc/ssl/certs/ca-certificates.crt"
