"""How an exchange with a node can end, one type each, so that no caller forgets one."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from apps.execution.protocol.answers import Clocks, RefusalCode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """The node did what was asked."""

    answer: T
    clocks: Clocks


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """The node understood and will not do it; nothing has changed there."""

    code: RefusalCode
    detail: str
    clocks: Clocks


@dataclass(frozen=True, slots=True)
class ImageMissing:
    """The image is not on the node: pull it, then launch a new generation."""

    detail: str
    clocks: Clocks


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The runtime could not start it; `detail` is the node's own words. It is over."""

    detail: str
    clocks: Clocks


@dataclass(frozen=True, slots=True)
class NodeUnreachable:
    """No answer. When `may_have_arrived`, whether the request was carried out is unknown."""

    detail: str
    may_have_arrived: bool
