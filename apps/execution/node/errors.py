"""What the helper answers instead of doing something."""

from __future__ import annotations


class RequestRefusal(Exception):
    """The request is understood and will not be carried out.

    `code` is stable and known to the control plane (protocol/answers.py); `detail` is for people.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
