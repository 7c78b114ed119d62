"""The address that a request came from, and the proxies that are trusted to name it."""

import pytest
from django.test import RequestFactory
from pytest_django import Settings

from apps.core.origin import client_address, one_host
from rpm import env

PROXIES = ["10.0.0.0/8", "::1"]


@pytest.mark.parametrize(
    ("peer", "forwarded", "want"),
    [
        pytest.param("192.0.2.7", None, "192.0.2.7", id="no proxy"),
        pytest.param("192.0.2.7", "203.0.113.9", "192.0.2.7", id="a client claims another"),
        pytest.param("10.1.1.1", "203.0.113.9", "203.0.113.9", id="a proxy tells"),
        pytest.param("::1", "2001:db8::5", "2001:db8::5", id="a proxy tells in IPv6"),
        pytest.param(
            "10.1.1.1", "1.1.1.1, 203.0.113.9", "203.0.113.9", id="the client lied before"
        ),
        pytest.param("10.1.1.1", "203.0.113.9, 10.2.2.2", "203.0.113.9", id="two proxies"),
        pytest.param("10.1.1.1", None, "10.1.1.1", id="a proxy without the header"),
        pytest.param("10.1.1.1", "unknown", "10.1.1.1", id="a proxy with no address in the header"),
        pytest.param("10.1.1.1", "<script>, 203.0.113.9", "203.0.113.9", id="rubbish before"),
        pytest.param("", None, "", id="a socket of the file system"),
    ],
)
def test_only_named_proxies_are_believed(
    settings: Settings, peer: str, forwarded: str | None, want: str
) -> None:
    settings.RPM_TRUSTED_PROXIES = PROXIES
    request = RequestFactory().get("/", REMOTE_ADDR=peer)
    if forwarded is not None:
        request.META["HTTP_X_FORWARDED_FOR"] = forwarded

    assert client_address(request) == want


def test_nobody_is_believed_by_default() -> None:
    request = RequestFactory().get("/", REMOTE_ADDR="127.0.0.1", HTTP_X_FORWARDED_FOR="1.2.3.4")

    assert client_address(request) == "127.0.0.1"


def test_a_proxy_that_is_no_network_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RPM_TRUSTED_PROXIES", "10.0.0.0/8,proxy.example.org")

    with pytest.raises(env.BadEnvironment, match="RPM_TRUSTED_PROXIES"):
        env.networks("RPM_TRUSTED_PROXIES")


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("", "local"),
    ],
)
def test_a_network_of_ipv6_counts_as_one_client(address: str, want: str) -> None:
    assert one_host(address) == want
