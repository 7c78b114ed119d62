"""Headers that every response carries."""

from collections.abc import Callable
from functools import lru_cache
from io import BytesIO
from typing import Any

from csp.middleware import CSPMiddleware, PolicyParts
from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.security import SecurityMiddleware

from apps.core.api import error_body
from apps.core.bodies import LARGEST, REFUSAL, has_login_headers, largest_body
from apps.core.errors import BodyTooLarge, RpmError, TooMany, Unavailable

Handler = Callable[[HttpRequest], HttpResponse]

# Copying to the clipboard and security keys are used; nothing of this is.
_PERMISSIONS = ", ".join(
    f"{name}=()"
    for name in (
        "accelerometer",
        "camera",
        "display-capture",
        "geolocation",
        "gyroscope",
        "magnetometer",
        "microphone",
        "midi",
        "payment",
        "usb",
        "xr-spatial-tracking",
    )
)


def response_defences(get_response: Handler) -> Handler:
    """Refuse bodies that no view reads, and keep responses out of caches.

    Headers that a response sets itself stay: files of the front-end are cached for long.
    """

    def handle(request: HttpRequest) -> HttpResponse:
        refusal = _body_refusal(request)
        response = get_response(request) if refusal is None else _refusal_response(refusal)
        response.headers.setdefault("Permissions-Policy", _PERMISSIONS)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response

    return handle


@lru_cache(maxsize=2)
def common_response_headers(*, is_secure: bool) -> dict[str, str]:
    """The headers that all middleware adds, for a response that passes none of it.

    Args:
        is_secure: the request came over TLS.
    """
    request = WSGIRequest(
        {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/",
            "wsgi.input": BytesIO(),
            "wsgi.url_scheme": "https" if is_secure else "http",
            **_proxy_ssl_meta(is_secure=is_secure),
        }
    )
    policies = PolicyMiddleware(XFrameOptionsMiddleware(lambda _: HttpResponse()))
    secured: Any = SecurityMiddleware(policies)
    answer = response_defences(secured)(request)
    return {name: value for name, value in answer.items() if name != "Content-Type"}


def proxy_ssl_header() -> tuple[str, str] | None:
    """What a proxy says of TLS, as a name in META and its value; None without a proxy."""
    return settings.SECURE_PROXY_SSL_HEADER


def _proxy_ssl_meta(*, is_secure: bool) -> dict[str, str]:
    header = proxy_ssl_header()
    return {header[0]: header[1]} if header and is_secure else {}


def _body_refusal(request: HttpRequest) -> RpmError | None:
    """Why the body of this request is not read; None where it is.

    Under ASGI `apps.core.bodies` has looked up who is signed in. Under WSGI the headers alone
    count: a body is read only where a view asks for it, and most ask who is signed in before.
    """
    scope: dict[str, Any] = getattr(request, "scope", {})
    refusal: RpmError | None = scope.get(REFUSAL)
    if refusal is not None:
        return refusal
    headers = request.headers
    is_known = has_login_headers(
        cookie=headers.get("Cookie", ""), authorization=headers.get("Authorization", "")
    )
    most: int = scope.get(LARGEST) or largest_body(request.path_info, is_known=is_known)
    declared = str(request.META.get("CONTENT_LENGTH") or "0")
    is_length = declared.isascii() and declared.isdigit() and len(declared) < 19
    return None if is_length and int(declared) <= most else BodyTooLarge(most)


def _refusal_response(error: RpmError) -> JsonResponse:
    response = JsonResponse(error_body(error), status=error.status)
    if isinstance(error, TooMany | Unavailable):
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


class PolicyMiddleware(CSPMiddleware):
    """Our Content-Security-Policy, and the one of each library's pages that need another."""

    def get_policy_parts(
        self,
        request: HttpRequest,
        response: HttpResponseBase,
        report_only: bool = False,  # noqa: FBT001, FBT002  # the library's signature
    ) -> PolicyParts:
        parts = super().get_policy_parts(request, response, report_only)
        for prefix, directives in settings.RPM_POLICIES.items():
            if request.path_info.startswith(prefix):
                parts.replace = {**(parts.replace or {}), **directives}
        return parts
