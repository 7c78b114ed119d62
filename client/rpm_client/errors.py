"""What can go wrong with a request, without anything that takes long to import."""

from __future__ import annotations

from collections.abc import Mapping


class RefusedError(Exception):
    """The server refused; `fields` says per field what would be right."""

    def __init__(self, status: int, code: str, detail: str, fields: Mapping[str, str]) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.fields = dict(fields)


class UnreachableError(Exception):
    """The server did not answer."""
