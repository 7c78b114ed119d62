"""Bodies as they came: the services read JSON themselves, once, with a limit."""

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser

from apps.core.errors import BodyTooLarge

# Above the largest command and environment together, so that the error can name the field.
BODY_BYTES = 4 * 1024 * 1024
BULK_BYTES = 16 * 1024 * 1024


class RawJsonParser(BaseParser):
    """`request.data` is the body in bytes."""

    media_type = "application/json"
    most = BODY_BYTES

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,  # noqa: ARG002  # DRF passes it by position
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002  # DRF passes it by position
    ) -> Any:
        body: bytes = stream.read(self.most + 1)
        if len(body) > self.most:
            raise BodyTooLarge(self.most)
        return body


class RawBulkParser(RawJsonParser):
    most = BULK_BYTES
