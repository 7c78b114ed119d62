"""What all REST endpoints share: one error shape, keyset pages, ETags."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import structlog
from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.exceptions import ValidationError as ModelError
from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView, set_rollback

from apps.core.errors import (
    MOST_PROBLEMS,
    BadInput,
    BodyTooLarge,
    NotAllowed,
    NotFound,
    RpmError,
    TooMany,
    Unavailable,
)
from apps.core.model_errors import from_model_error
from apps.core.suggestions import NAME_CHARS, shorten

# Of the sentences in an answer.
DETAIL_CHARS = 10_000

log = structlog.get_logger(__name__)


class KeysetPagination(CursorPagination):
    """Pages by the last key of the page before, so that page 10,000 costs as much as page 1."""

    page_size = 100
    page_size_query_param = "limit"
    max_page_size = 500
    ordering = "-id"

    def get_page_size(self, request: Request) -> int:
        """The rows that `limit` asks for.

        Raises:
            BadInput: it is no whole number from 1 to the most of this list.
        """
        most = self.max_page_size or self.page_size
        given = whole_parameter(request, self.page_size_query_param or "", lowest=1, highest=most)
        return given or self.page_size

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any] | None:
        """One page; a cursor that this list did not issue is refused like any other bad value."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (
            ValueError,
            OverflowError,
            DataError,
            ModelError,
            exceptions.NotFound,
        ) as error:
            wrong = "is not a cursor of this list"
            raise BadInput(f"cursor {wrong}.", fields={"cursor": wrong}) from error


def exception_handler(error: Exception, _context: Mapping[str, Any]) -> Response | None:
    """Every expected failure as `{"code", "detail", "fields"}` with its status."""
    known = _as_rpm_error(error)
    if known is None:
        return None
    set_rollback()
    headers = {}
    if isinstance(error, exceptions.APIException):
        scheme = getattr(error, "auth_header", None)
        if scheme:
            headers["WWW-Authenticate"] = scheme
        wait_s = getattr(error, "wait", None)
        if wait_s:
            headers["Retry-After"] = str(wait_s)
    if isinstance(known, Unavailable | TooMany):
        headers["Retry-After"] = str(known.retry_after_s)
    return Response(error_body(known), status=known.status, headers=headers)


def error_body(error: RpmError) -> dict[str, Any]:
    """The one shape of an error; `request_id` finds its lines in the logs."""
    bound = structlog.contextvars.get_contextvars()
    fields = islice(error.fields.items(), MOST_PROBLEMS)
    return {
        "code": error.code,
        "detail": error.detail[:DETAIL_CHARS],
        "fields": {
            shorten(name, most=2 * NAME_CHARS): problem[:DETAIL_CHARS] for name, problem in fields
        },
        "request_id": bound.get("request_id", ""),
    }


def whole_parameter(request: Request, name: str, *, lowest: int, highest: int) -> int | None:
    """A query parameter that is a whole number; None where it is missing.

    Raises:
        BadInput: it is something else, or out of bounds.
    """
    text = request.query_params.get(name, "")
    if not text:
        return None
    is_plain = text.isascii() and text.isdigit() and len(text) < 20
    if not is_plain or not lowest <= int(text) <= highest:
        problem = f"must be a whole number from {lowest} to {highest}"
        raise BadInput(f"{name} {problem}.", fields={name: problem})
    return int(text)


def if_match(request: Request, *, is_required: bool = False) -> int | None:
    """The version that `If-Match` names; None where it is left out or `*`.

    An unknown ETag gives -1, the version of no row.

    Raises:
        BadInput: the header is missing and required.
    """
    given = request.headers.get("If-Match", "").strip()
    if not given and is_required:
        wanted = 'send the ETag that you read, e.g. "7"'
        raise BadInput(f"If-Match is missing: {wanted}.", fields={"If-Match": wanted})
    if given in {"", "*"}:
        return None
    plain = given.removeprefix("W/").strip('"')
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 19 else -1


def _as_rpm_error(error: Exception) -> RpmError | None:
    if isinstance(error, RpmError):
        return error
    if isinstance(error, Http404):
        return NotFound("There is no such thing, or you may not see it.")
    if isinstance(error, RequestDataTooBig):
        return BodyTooLarge(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    if isinstance(error, PermissionDenied | exceptions.PermissionDenied):
        return NotAllowed(str(getattr(error, "detail", "You may not do this.")))
    if isinstance(error, ModelError):
        return from_model_error(error)
    if isinstance(error, exceptions.ValidationError):
        fields = dict(islice(_flat(error.detail), MOST_PROBLEMS))
        return BadInput("; ".join(f"{k}: {v}" for k, v in fields.items()), fields=fields)
    if isinstance(error, exceptions.APIException):
        known = RpmError(str(error.detail))
        known.status = error.status_code
        known.code = str(error.default_code)
        return known
    return _as_unavailable(error)


def _as_unavailable(error: Exception) -> Unavailable | None:
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    log.error("database.away", exc_info=error)
    return Unavailable("The database does not answer; what you sent may have been stored.")


def _flat(detail: Any, prefix: str = "") -> list[tuple[str, str]]:
    """DRF's nested messages as dotted field names."""
    if isinstance(detail, Mapping):
        return [
            pair
            for key, value in detail.items()
            for pair in _flat(value, f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(detail, list):
        if all(not isinstance(item, (Mapping, list)) for item in detail):
            return [(prefix or "detail", " ".join(str(item) for item in detail))]
        return [
            pair
            for index, item in enumerate(detail)
            for pair in _flat(item, f"{prefix}.{index}" if prefix else str(index))
        ]
    return [(prefix or "detail", str(detail))]
