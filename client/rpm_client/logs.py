"""Reading what members of tasks write, part by part, until their tasks have ended."""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpm_client.client import Client

ENDED = frozenset({"completed", "failed", "aborted"})
# These run only after their owner has put them back into a queue.
OVER = ENDED | {"draft", "rejected"}


class LogReader:
    """The output of one member; another attempt is read from its beginning."""

    def __init__(self, client: Client, task_id: str, *, rank: int = 0) -> None:
        self._client = client
        self._task_id = task_id
        self._rank = rank
        self._offset: int | None = None
        self._generation: int | None = None
        self.is_over = False
        self.is_idle = False

    def read(self) -> str:
        """The next part, empty where there is none yet.

        `is_over` says that none comes any more, `is_idle` that it is worth waiting for one.
        """
        has_ended = self._client.task(self._task_id)["state"] in OVER
        part = self._part(self._offset)
        if self._generation is not None and part["generation"] != self._generation:
            part = self._part(0)
        has_more = part["next_offset"] != self._offset
        self._generation, self._offset = part["generation"], part["next_offset"]
        text: str = part["text"]
        self.is_idle = not text and not has_more
        self.is_over = has_ended and self.is_idle
        return text

    def parts(self, every_s: float = 1.0) -> Iterator[str]:
        """What comes until the end; a second time, what came after the last part."""
        while not self.is_over:
            text = self.read()
            if text:
                yield text
            if self.is_idle and not self.is_over:
                sleep(every_s)

    def _part(self, offset: int | None) -> dict[str, Any]:
        return self._client.log(self._task_id, rank=self._rank, offset=offset)
