"""Requests that this installation makes by itself: only to allowed addresses, never for ever.

An administrator types addresses of identity providers, and responses name further ones. An attacker
who points such a request at the installation's own network could explore it. So names are
resolved here, every address is checked, and the connection goes to the address that was checked:
a name that resolves differently in between changes nothing.
"""

import io
import ipaddress
import socket
import time
from collections.abc import Iterable
from contextvars import ContextVar
from functools import partial
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import requests
from django.conf import settings
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.util.connection import create_connection

MOST_BYTES = 1_000_000
MOST_REDIRECTS = 3
CONNECT_S, READ_S, ALL_S = 5.0, 10.0, 20.0
_CHUNK = 16_384
# The time at which the current request must end, with all its redirects.
_until: ContextVar[float] = ContextVar("until")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
# Relays of 6to4 and AMT, AS112, protocol assignments, 6to4, documentation.
_LEADS_ELSEWHERE = tuple(
    ipaddress.ip_network(block)
    for block in (
        "192.0.0.0/24",
        "192.88.99.0/24",
        "192.52.193.0/24",
        "192.31.196.0/24",
        "192.175.48.0/24",
        "2001::/23",
        "2002::/16",
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)
# Where Azure gives a machine its configuration and certificates.
_CLOUD_HOST = ipaddress.ip_address("168.63.129.16")


class RequestRefused(requests.RequestException):
    """The request must not be made, or its answer is larger or slower than any that is useful."""


def outgoing_session() -> requests.Session:
    """A session of `requests` whose requests are checked, redirects included."""
    session = _Session()
    # No proxy and no password file of the environment: the checked address gets the request.
    session.trust_env = False
    session.verify = settings.RPM_CA_FILE or True
    session.max_redirects = MOST_REDIRECTS
    session.adapters.clear()
    for prefix in ("https://", "http://"):
        session.mount(prefix, _Adapter(max_retries=0))
    return session


def address_problem(url: str) -> str:
    """What is wrong with an address as typed, before it is resolved; empty for nothing."""
    try:
        # Half of a surrogate pair cannot be encoded.
        url.encode()
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return "is no address: write one such as https://login.example.com/path"
    if not host or parts.username is not None or parts.fragment:
        return "is no address: write one such as https://login.example.com/path"
    if parts.scheme == "https" or (parts.scheme == "http" and _may_be_plain(host)):
        return ""
    return "must begin with https://"


def checked_addresses(host: str, found: Iterable[str]) -> list[str]:
    """The addresses of a host, where all of them may be asked.

    Raises:
        RequestRefused: one of them is outside the networks where identity providers are allowed.
    """
    addresses = list(found)
    for address in addresses:
        if not _check_allowed(host, ipaddress.ip_address(address.partition("%")[0])):
            raise RequestRefused(
                f"{host} is at {address}, which is not asked. A provider in a private network must "
                "be named in RPM_IDENTITY_HOSTS."
            )
    return addresses


def _check_allowed(host: str, address: _Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    real = mapped or address
    if real.is_loopback:
        return bool(settings.RPM_IDENTITY_ALLOW_LOOPBACK)
    inner = _wrapped(real)
    if _is_always_refused(real) or (inner and (inner.is_loopback or _is_always_refused(inner))):
        # The metadata services of clouds, which hold passwords: never allowed.
        return False
    return (not inner and _is_public(real)) or host.lower() in _allowed_hosts()


def _is_always_refused(address: _Address) -> bool:
    return (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
        or address == _CLOUD_HOST
    )


def _is_public(address: _Address) -> bool:
    """Python counts site-local addresses and the relays of tunnels as global."""
    if address.version == 6 and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not any(address in block for block in _LEADS_ELSEWHERE)


def _wrapped(address: _Address) -> ipaddress.IPv4Address | None:
    """The address inside one of a tunnel (6to4, Teredo, ISATAP), which might be private."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.teredo is not None:
        return address.teredo[1]
    is_isatap = address.packed[8:12] in {b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe"}
    return ipaddress.IPv4Address(address.packed[12:]) if is_isatap else address.sixtofour


def _allowed_hosts() -> frozenset[str]:
    return frozenset(host.lower() for host in settings.RPM_IDENTITY_HOSTS)


def _may_be_plain(host: str) -> bool:
    if not settings.RPM_IDENTITY_ALLOW_LOOPBACK:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _connect(connection: HTTPConnection) -> socket.socket:
    """A socket to an address that was checked; in place of urllib3's own look-up."""
    # urllib3 keeps the name as the certificate must have it; this is where it is looked up.
    host: str = connection._dns_host
    try:
        rows = socket.getaddrinfo(host, connection.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NewConnectionError(connection, f"{host} has no address: {error}") from error
    addresses = checked_addresses(host.strip("[]").rstrip("."), [str(row[4][0]) for row in rows])
    problem: OSError = OSError("no address")
    for address in dict.fromkeys(addresses):
        try:
            return create_connection(
                (address, connection.port),
                timeout=min(CONNECT_S, _left_s()),
                socket_options=connection.socket_options,
            )
        except OSError as error:
            problem = error
    raise NewConnectionError(connection, f"{host} does not answer: {problem}") from problem


def _left_s() -> float:
    left = _until.get() - time.monotonic()
    if left <= 0:
        raise TimeoutError("no time is left")
    return left


class _Timed(io.RawIOBase):
    """What a socket receives, as long as there is time.

    A socket's own timeout begins again with each byte, so that a line could take for ever.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self._raw = connected.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int | None:
        self._connected.settimeout(min(READ_S, _left_s()))
        return self._raw.readinto(into)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_Timed(sock))


class _PlainConnection(HTTPConnection):
    response_class = _TimedResponse

    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _SafeConnection(HTTPSConnection):
    response_class = _TimedResponse

    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _SafePool(HTTPSConnectionPool):
    ConnectionCls = _SafeConnection


class _Adapter(HTTPAdapter):
    """Checks each address that is asked, the first one and where it redirects to."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SafePool}

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        _check_address(request.url or "")
        options = kwargs | {"stream": True, "timeout": (CONNECT_S, READ_S), "proxies": None}
        try:
            response: requests.Response = super().send(request, *args, **options)
            # As `.content` would set it, which reads without an end.
            response._content = _check_size(response)
        except (requests.RequestException, HTTPError) as error:
            if time.monotonic() > _until.get():
                words = f"{request.url} takes longer than {ALL_S:.0f} s to answer."
                raise RequestRefused(words) from error
            if isinstance(error, HTTPError):
                # What is below `requests` has errors of its own while a body is read.
                raise RequestRefused(f"{request.url} breaks off its answer: {error}") from error
            raise
        response._content_consumed = True
        response.close()
        return response


class _Session(requests.Session):
    """Stays at the requested host: what is sent along is for no other host."""

    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        # Before `requests` prepares it, which has other errors for what is no address.
        _check_address(str(url))
        before = _until.set(time.monotonic() + ALL_S)
        try:
            return super().request(method, url, *args, **kwargs)
        finally:
            _until.reset(before)

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        target = super().get_redirect_target(resp)
        if target is not None:
            here, there = urlsplit(resp.url), urlsplit(target)
            if there.netloc and (there.scheme, there.netloc) != (here.scheme, here.netloc):
                raise RequestRefused(
                    f"{here.netloc} sends on to {there.netloc}, which was not asked for."
                )
        return target


def _check_address(url: str) -> None:
    problem = address_problem(url)
    if problem:
        raise RequestRefused(f"{url!r} {problem}.")


def _check_size(response: requests.Response) -> bytes:
    parts = bytearray()
    for part in iter(partial(response.raw.read1, _CHUNK, decode_content=True), b""):
        parts += part
        if len(parts) > MOST_BYTES:
            response.close()
            raise RequestRefused(f"{response.url} answers with more than {MOST_BYTES} bytes.")
    return bytes(parts)
