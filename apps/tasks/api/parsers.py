"""Raw request bodies: the services parse JSON themselves, once, with a limit."""

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.parsers import BaseParser

from apps.core.errors import BodyTooLarge


class RawJsonParser(BaseParser):
    """`request.data` is the body in bytes."""

    media_type = "application/json"
    # The setting with the most bytes that are read: above the largest command and environment
    # together, so that the error can name the field.
    bound = "RPM_USUAL_BODY"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,  # noqa: ARG002  # DRF passes it by position
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002  # DRF passes it by position
    ) -> Any:
        most: int = getattr(settings, self.bound)
        body: bytes = stream.read(most + 1)
        if len(body) > most:
            raise BodyTooLarge(most)
        return body


class RawBulkParser(RawJsonParser):
    bound = "RPM_LARGEST_BODY"
