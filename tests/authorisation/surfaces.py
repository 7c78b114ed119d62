"""Every request that this installation accepts, read from the URL configuration.

A surface is an address with holes and one method, such as `GET /policies/<pk>/`, or a live card.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.contrib.admindocs.views import simplify_regex
from django.urls import URLPattern, URLResolver, get_resolver

from apps.dashboard.live import CARDS
from apps.dashboard.render import ALL_CARD_MODULES

View = Callable[..., Any]
HOLE = re.compile(r"<(?:\w+:)?(\w+)>")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# Views of Django and of libraries that do not say it: forms are read and sent.
FORM = ("GET", "POST")
# The registry of cards is filled by importing them: the name keeps the import in use.
CARD_MODULES = ALL_CARD_MODULES


@dataclass(frozen=True, slots=True, order=True)
class Surface:
    """One method of one address; `holes` are the names of its parameters.

    A live card has an address such as `card:policy_card`, and the method `CARD` where it is fetched
    or `WATCH` where the socket is asked to follow it.
    """

    address: str
    method: str
    holes: tuple[str, ...] = ()

    @property
    def is_card(self) -> bool:
        return self.method in {"CARD", "WATCH"}

    @property
    def changes(self) -> bool:
        return not self.is_card and self.method != "GET"

    def __str__(self) -> str:
        return f"{self.method} {self.address}"


@cache
def surfaces() -> tuple[Surface, ...]:
    """All surfaces, by address."""
    found = {
        Surface(address, method, tuple(HOLE.findall(address)))
        for address, view in _addresses(get_resolver())
        for method in methods_of(view)
    }
    found |= {
        Surface(f"card:{name}", method, ("key",)) for name in CARDS for method in ("CARD", "WATCH")
    }
    return tuple(sorted(found))


def _addresses(place: Any, prefix: str = "") -> Iterator[tuple[str, View]]:
    for entry in place.url_patterns:
        address = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _addresses(entry, address)
        elif isinstance(entry, URLPattern) and entry.callback is not None:
            yield _plain(address), entry.callback


def _plain(address: str) -> str:
    """The address without pattern characters: `/api/v1/pools/<pk>/`."""
    is_pattern = "(?P" in address or "^" in address
    plain = simplify_regex(address) if is_pattern else f"/{address}"
    return HOLE.sub(lambda hole: f"<{hole.group(1)}>", plain.replace("\\Z", ""))


def methods_of(view: View) -> tuple[str, ...]:
    """The methods of a view: of REST by its class, of a page by its decorator."""
    actions: dict[str, str] = getattr(view, "actions", None) or {}
    if actions:
        return tuple(sorted(name.upper() for name in actions if name.upper() in METHODS))
    known = getattr(view, "cls", None) or getattr(view, "view_class", None)
    if known is not None:
        return tuple(name for name in METHODS if hasattr(known, name.lower())) or METHODS
    return _decorated(view) or FORM


def _decorated(view: View) -> tuple[str, ...]:
    """What `require_http_methods` around a function was given."""
    step: Any = view
    while step is not None:
        for cell in step.__closure__ or ():
            given = cell.cell_contents
            if isinstance(given, list) and given and set(given) <= {*METHODS, "HEAD"}:
                return tuple(name for name in given if name in METHODS)
        step = getattr(step, "__wrapped__", None)
    return ()
