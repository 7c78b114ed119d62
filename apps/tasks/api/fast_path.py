"""`POST /api/v1/tasks/` with a credential, before Django's own stack sees it.

It only answers for tasks that it stored. An unusual request (no credential, another host, an
idempotency key, an error in the body, a missing permission) goes on to Django unchanged, so that
one place reports errors. `tests/tasks/api/test_fast_path.py` and
`test_fast_path_fields.py` next to it compare the two.
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
from apps.accounts.services.throttling import address_admit
from apps.core.api import error_body
from apps.core.errors import RpmError, Unavailable
from apps.core.headers import common_response_headers, proxy_ssl_header
from apps.core.origin import client_address_of
from apps.tasks.services.enqueue.fast_path import task_submit_fast
from apps.tasks.task_payloads import stored_task_detail
from apps.tasks.task_spec import read_spec

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


def with_fast_path(django: Application) -> Application:
    """A WSGI application that answers fast-path requests and leaves the rest to `django`."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "POST" and environ.get("PATH_INFO") == PATH:
            answer = _answer(environ)
            if answer is not None:
                start_response(answer.status, answer.headers)
                return [answer.body]
        return django(environ, start_response)

    return application


def _answer(environ: Environ) -> _Answer | None:
    """The response for a task that was stored; None leaves the request to Django."""
    pair = basic_pair(environ.get("HTTP_AUTHORIZATION", ""))
    if pair is None or not _is_eligible(environ):
        return None
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    # Django reads it again where the fast path gives no response.
    environ["wsgi.input"] = io.BytesIO(body)
    address = client_address_of(environ)
    try:
        address_admit(address)
        spec = read_spec(body)
        stored = task_submit_fast(key=pair[0], secret=pair[1], address=address, spec=spec)
    except Unavailable as error:
        # Django does not try again: the task may be stored already.
        wait = {"Retry-After": str(error.retry_after_s)}
        return _response(environ, "503 Service Unavailable", error_body(error), wait)
    except RpmError:
        return None
    if stored is None:
        return None
    version = int(stored.at.timestamp() * 1_000_000)
    payload = stored_task_detail(stored, spec)
    return _response(environ, "201 Created", payload, {"ETag": f'"{version}"'})


def _response(environ: Environ, status: str, payload: Any, headers: dict[str, str]) -> _Answer:
    body = msgspec.json.encode(payload)
    given = environ.get("HTTP_X_REQUEST_ID", "")
    common = {
        **common_response_headers(is_secure=_is_secure(environ)),
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "X-Request-ID": given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex,
    }
    return _Answer(status, [*common.items(), *headers.items()], body)


def _is_secure(environ: Environ) -> bool:
    """As Django sees it: from the proxy's header, where a trusted proxy is configured."""
    proxy_header = proxy_ssl_header()
    if proxy_header:
        return str(environ.get(proxy_header[0], "")).partition(",")[0].strip() == proxy_header[1]
    return environ.get("wsgi.url_scheme") == "https"


def _is_eligible(environ: Environ) -> bool:
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
