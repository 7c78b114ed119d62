"""`POST /api/v1/tasks/` with a credential, before Django's own stack sees it.

It only ever answers what was stored. Whatever is unusual about a request (no credential, another
host, an idempotency key, anything wrong in the body, a right that is missing) goes on to Django
unchanged, so that there is one place that says what is wrong. `tests/tasks/api/test_express.py`
compares the two.
"""

import io
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from apps.accounts.services.credentials import basic_pair
from apps.accounts.services.throttling import address_admitted
from apps.core.api import error_body
from apps.core.errors import RpmError, Unavailable
from apps.core.headers import headers_of_every_answer, proxys_word
from apps.core.origin import client_address_of
from apps.tasks.answers import stored_detail
from apps.tasks.descriptions import read_description
from apps.tasks.services.express import task_submit_at_once

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

PATH = "/api/v1/tasks/"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")


@dataclass(frozen=True, slots=True)
class _Answer:
    status: str
    headers: list[tuple[str, str]]
    body: bytes


def with_express(django: Application) -> Application:
    """The WSGI application that answers the hot way in itself and leaves the rest to `django`."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "POST" and environ.get("PATH_INFO") == PATH:
            answer = _answer(environ)
            if answer is not None:
                start_response(answer.status, answer.headers)
                return [answer.body]
        return django(environ, start_response)

    return application


def _answer(environ: Environ) -> _Answer | None:
    """The answer to a task that was stored; None leaves everything to Django."""
    pair = basic_pair(environ.get("HTTP_AUTHORIZATION", ""))
    if pair is None or not _is_usual(environ):
        return None
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    # Django reads it again where this ends without an answer.
    environ["wsgi.input"] = io.BytesIO(body)
    address = client_address_of(environ)
    try:
        address_admitted(address)
        description = read_description(body)
        stored = task_submit_at_once(
            key=pair[0], secret=pair[1], address=address, description=description
        )
    except Unavailable as error:
        # Django does not try again: the task may be there.
        wait = {"Retry-After": str(error.retry_after_s)}
        return _told(environ, "503 Service Unavailable", error_body(error), wait)
    except RpmError:
        return None
    if stored is None:
        return None
    version = int(stored.at.timestamp() * 1_000_000)
    told = stored_detail(stored, description)
    return _told(environ, "201 Created", told, {"ETag": f'"{version}"'})


def _told(environ: Environ, status: str, told: Any, headers: dict[str, str]) -> _Answer:
    body = msgspec.json.encode(told)
    given = environ.get("HTTP_X_REQUEST_ID", "")
    common = {
        **headers_of_every_answer(is_secure=_is_secure(environ)),
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "X-Request-ID": given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex,
    }
    return _Answer(status, [*common.items(), *headers.items()], body)


def _is_secure(environ: Environ) -> bool:
    """As Django sees it: by the proxy's word, where there is one that is believed."""
    told = proxys_word()
    if told:
        return str(environ.get(told[0], "")).partition(",")[0].strip() == told[1]
    return environ.get("wsgi.url_scheme") == "https"


def _is_usual(environ: Environ) -> bool:
    length = environ.get("CONTENT_LENGTH", "")
    return (
        length.isdigit()
        and 0 < int(length) <= settings.RPM_USUAL_BODY
        and environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() == "application/json"
        and "HTTP_IDEMPOTENCY_KEY" not in environ
        and "HTTP_X_RPM_ACT_FOR" not in environ
        and _is_our_host(environ.get("HTTP_HOST", ""))
    )


@lru_cache(maxsize=256)
def _is_our_host(host: str) -> bool:
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)
