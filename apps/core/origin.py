"""The origin of the current call: which request, which address, which command.

A context variable holds it, so that services need not know of requests. A thread that no request
started has an empty origin: the installation acts by itself.
"""

import ipaddress
import os
import pwd
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest

PAGE, REST, ADMIN_SITE, COMMAND_LINE = "page", "rest", "admin site", "command line"
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Origin:
    """How a user made the call; `via` is empty where no user did.

    `command` is that of `manage.py`, `account` the operating system account that called it;
    `acting` is (the user acted for, the service account).
    """

    via: str = ""
    request_id: str = ""
    address: str = ""
    command: str = ""
    account: str = ""
    acting: tuple[int, int] | None = None


_NOBODY = Origin()
_origin: ContextVar[Origin] = ContextVar("origin", default=_NOBODY)


def origin() -> Origin:
    """The origin of the current call."""
    return _origin.get()


def origin_of_request(request: HttpRequest, *, request_id: str) -> None:
    """Set the origin for all that follows, until the next request."""
    path = request.path_info
    via = REST if path.startswith("/api/") else ADMIN_SITE if path.startswith("/admin/") else PAGE
    _origin.set(Origin(via=via, request_id=request_id, address=client_address(request)))


def origin_of_command(command: str) -> None:
    """For `manage.py`: a person at the machine's own command line."""
    _origin.set(Origin(via=COMMAND_LINE, command=command, account=_account()))


def acts_for(person_id: int, *, service_id: int) -> None:
    """Record that a service account acts for the user in this request."""
    _origin.set(replace(_origin.get(), acting=(person_id, service_id)))


def acted_by(person_id: int | None) -> int | None:
    """The service account that acts for this user in this request."""
    acting = _origin.get().acting
    return acting[1] if acting is not None and acting[0] == person_id else None


def client_address(request: HttpRequest) -> str:
    """The address that a request came from; empty where it came over a socket of files."""
    return client_address_of(request.META)


def client_address_of(facts: Mapping[str, Any]) -> str:
    """The same for the environment of WSGI, or what is like it.

    What a proxy says in `X-Forwarded-For` counts only where the one that speaks to this process is
    named in RPM_TRUSTED_PROXIES; of the list, the last entry that is no such proxy.
    """
    trusted = _networks(tuple(settings.RPM_TRUSTED_PROXIES))
    address = str(facts.get("REMOTE_ADDR") or "")
    forwarded = str(facts.get("HTTP_X_FORWARDED_FOR") or "").split(",")
    while forwarded and _is_in(address, trusted):
        before = forwarded.pop().strip()
        if _parse(before) is None:
            break
        address = before
    return address if _parse(address) is not None else ""


def one_host(address: str) -> str:
    """What counts as one client: an address of IPv4, a /64 of IPv6."""
    known = _parse(address)
    if known is None:
        return "local"
    if isinstance(known, ipaddress.IPv4Address):
        return address
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    # A client with one IPv6 address has the others of its network, too.
    return str(ipaddress.ip_network((known, 64), strict=False))


@lru_cache(maxsize=8)
def _networks(names: tuple[str, ...]) -> tuple[_Network, ...]:
    return tuple(ipaddress.ip_network(name) for name in names)


def _parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


def _is_in(address: str, networks: tuple[_Network, ...]) -> bool:
    found = _parse(address)
    return found is not None and any(found in network for network in networks)


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        # No such line in the list of accounts, as in containers.
        return str(os.getuid())
