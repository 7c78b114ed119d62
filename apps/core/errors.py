"""Errors that a user can understand. Services raise them, the edges translate them once."""

from collections.abc import Mapping

# An answer names no more things that are wrong.
MOST_PROBLEMS = 20


class RpmError(Exception):
    """An expected failure: a stable `code`, a sentence, and sentences per field.

    `status` is the HTTP status that the edges answer with.
    """

    code = "error"
    status = 400

    def __init__(self, detail: str, *, fields: Mapping[str, str] | None = None) -> None:
        # A question at the end of a problem needs no full stop behind it.
        self.detail = detail.removesuffix(".") if detail.endswith("?.") else detail
        super().__init__(self.detail)
        self.fields: dict[str, str] = dict(fields or {})


class BadInput(RpmError):
    """What was sent cannot be used; `fields` names what and says what would be right."""

    code = "invalid"
    status = 400


class NotFound(RpmError):
    """There is no such object, or this user may not see it."""

    code = "not_found"
    status = 404


class NotAllowed(RpmError):
    """The object is visible, but the permission for this is missing."""

    code = "forbidden"
    status = 403


class Conflict(RpmError):
    """The object is not in a state that allows this."""

    code = "conflict"
    status = 409


class Stale(RpmError):
    """The object has changed since it was read."""

    code = "stale"
    status = 412


class NeverFits(RpmError):
    """The task could never run; the numbers say why."""

    code = "never_fits"
    status = 422


class BodyTooLarge(RpmError):
    """The body is larger than any request needs."""

    code = "too_large"
    status = 413

    def __init__(self, most: int) -> None:
        problem = f"is too large: at most {most} bytes are read"
        super().__init__(f"The body {problem}.", fields={"body": problem})


class BodyTooSlow(RpmError):
    """The body was not whole in time."""

    code = "too_slow"
    status = 408

    def __init__(self, seconds: int) -> None:
        super().__init__(f"The body did not arrive within {seconds} seconds. Try again.")


class Unavailable(RpmError):
    """The database does not answer: whether something was stored may be unknown."""

    code = "unavailable"
    status = 503
    retry_after_s = 5


class TooMany(RpmError):
    """Too many requests; the next is answered in `retry_after_s` seconds."""

    code = "throttled"
    status = 429

    def __init__(self, detail: str, *, retry_after_s: int) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
