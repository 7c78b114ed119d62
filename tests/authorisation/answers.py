"""What can come of asking."""

from enum import StrEnum


class Answer(StrEnum):
    """What came of asking."""

    ALLOW = "allowed"  # done, or refused for what was sent, not for who sent it
    SIGN_IN = "sign in first"
    FORBID = "forbidden"
    HIDE = "hidden"
    METHOD = "no such method"
    GONE = "gone"
    BROKEN = "broken"
