"""Request ids in every log line and answer, and expected errors as pages."""

import re
import uuid
from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.core.errors import RpmError, TooMany
from apps.core.origin import origin_of_request

Handler = Callable[[HttpRequest], HttpResponse]

_GIVEN = re.compile(r"[A-Za-z0-9._-]{8,64}")


def request_id(get_response: Handler) -> Handler:
    """Bind an id to every log line of the request, and send it back as `X-Request-ID`.

    An id that a proxy set is kept when it holds safe characters only.
    """

    def handle(request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Request-ID", "")
        identifier = given if _GIVEN.fullmatch(given) else uuid.uuid4().hex
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=identifier)
        origin_of_request(request, request_id=identifier)
        response = get_response(request)
        response["X-Request-ID"] = identifier
        return response

    return handle


def rest_slash(get_response: Handler) -> Handler:
    """REST answers with and without the slash at the end, without a redirect that loses bodies."""

    def handle(request: HttpRequest) -> HttpResponse:
        if request.path_info.startswith("/api/v1/") and not request.path_info.endswith("/"):
            request.path_info += "/"
            request.path += "/"
        return get_response(request)

    return handle


class RpmErrors:
    """Turns the errors that services raise in page views into a page with their sentence."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, RpmError):
            return None
        response = render(request, "pages/error.html", {"error": error}, status=error.status)
        if isinstance(error, TooMany):
            response["Retry-After"] = str(error.retry_after_s)
        return response


rpm_errors = RpmErrors
