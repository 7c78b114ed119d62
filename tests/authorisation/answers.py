"""The kinds of answers to a request."""

from enum import StrEnum


class Answer(StrEnum):
    """The kind of an answer."""

    ALLOW = "allowed"  # done, or refused for what was sent, not for who sent it
    SIGN_IN = "sign in first"
    FORBID = "forbidden"
    HIDE = "hidden"
    METHOD = "no such method"
    GONE = "gone"
    BROKEN = "broken"
