"""Reading request bodies: strict JSON with a bound on its size and depth."""

import io
import json
import math
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework import exceptions
from rest_framework.parsers import JSONParser

from apps.core.errors import BadInput, BodyTooLarge


class BoundedJSONParser(JSONParser):
    """JSON as DRF reads it, without NaN and Infinity, and with a bound."""

    strict = True

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        body = read_bounded_body(stream)
        try:
            return super().parse(io.BytesIO(body), media_type, parser_context)
        except RecursionError as error:
            raise not_json("is nested too deeply") from error
        except exceptions.ParseError as error:
            raise not_json(str(error.detail), body=body) from error


def not_json(problem: str, *, body: bytes = b"") -> BadInput:
    """The error of a body that is not JSON; numbers that JSON does not know are named by place."""
    path = _odd_number(body)
    if path is not None:
        wrong = "is NaN or infinite: give a number such as 4 or 0.5"
        return BadInput(f"{path} {wrong}.", fields={path: wrong})
    wrong = f"is not JSON: {problem}"
    return BadInput(f"The body {wrong}.", fields={"body": wrong})


def _odd_number(body: bytes) -> str | None:
    """The place of the first NaN or infinity, as `pools[0].capacity.gpu`."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    open_ends: list[tuple[str, Any]] = [("", value)]
    while open_ends:
        path, value = open_ends.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return path or "body"
        if isinstance(value, dict):
            parts = [(f"{path}.{key}".lstrip("."), one) for key, one in value.items()]
        elif isinstance(value, list):
            parts = [(f"{path}[{index}]", one) for index, one in enumerate(value)]
        else:
            parts = []
        open_ends += reversed(parts)
    return None


def read_bounded_body(stream: IO[bytes]) -> bytes:
    """All that was sent; Django bounds only what its own code reads.

    Raises:
        BodyTooLarge: more than `DATA_UPLOAD_MAX_MEMORY_SIZE` bytes came.
    """
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    body = stream.read(most + 1)
    if len(body) > most:
        raise BodyTooLarge(most)
    return body
