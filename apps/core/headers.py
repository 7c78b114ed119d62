"""What every answer says beside its content."""

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
from apps.core.bodies import largest_body
from apps.core.errors import BodyTooLarge

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


def harmless_answers(get_response: Handler) -> Handler:
    """Refuse bodies that nothing here reads; nobody keeps an answer who did not ask for it.

    What an answer says for itself stays: files of the front-end are kept for long.
    """

    def handle(request: HttpRequest) -> HttpResponse:
        declared = str(request.META.get("CONTENT_LENGTH") or "0")
        most = _largest_body(request)
        if declared.isascii() and declared.isdigit() and len(declared) < 19:
            is_too_large = int(declared) > most
        else:
            is_too_large = True
        response = _too_large(most) if is_too_large else get_response(request)
        response.headers.setdefault("Permissions-Policy", _PERMISSIONS)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response

    return handle


@lru_cache(maxsize=2)
def headers_of_every_answer(*, is_secure: bool) -> dict[str, str]:
    """What those who add to answers add to an empty one, for an answer that passes none of them.

    Args:
        is_secure: the request came over TLS.
    """
    request = WSGIRequest(
        {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/",
            "wsgi.input": BytesIO(),
            "wsgi.url_scheme": "https" if is_secure else "http",
            **_told_by_proxy(is_secure=is_secure),
        }
    )
    policies = PolicyMiddleware(XFrameOptionsMiddleware(lambda _: HttpResponse()))
    secured: Any = SecurityMiddleware(policies)
    answer = harmless_answers(secured)(request)
    return {name: value for name, value in answer.items() if name != "Content-Type"}


def proxys_word() -> tuple[str, str] | None:
    """What a proxy says of TLS, as a name in META and its value; None: nobody is asked."""
    return settings.SECURE_PROXY_SSL_HEADER


def _told_by_proxy(*, is_secure: bool) -> dict[str, str]:
    told = proxys_word()
    return {told[0]: told[1]} if told and is_secure else {}


def _largest_body(request: HttpRequest) -> int:
    meta = request.META
    named = {
        name: str(meta.get(f"HTTP_{name.upper()}", "")) for name in ("authorization", "cookie")
    }
    return largest_body(request.path_info, named)


def _too_large(most: int) -> JsonResponse:
    error = BodyTooLarge(most)
    return JsonResponse(error_body(error), status=error.status)


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
