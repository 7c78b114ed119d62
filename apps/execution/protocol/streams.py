"""What a node says of a stream, besides the bytes that it carries."""

from typing import Literal

from msgspec import Struct

from apps.execution.protocol.bounds import Code


class StreamAnswer(Struct, frozen=True):
    """The stream has begun; its frames follow."""

    state: Literal["open"]


class StreamEnd(Struct, frozen=True):
    """How a stream ended by itself: the command's exit code, if that is known."""

    exit_code: Code | None = None
    is_task_over: bool = False
