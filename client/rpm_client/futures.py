"""Tasks that were submitted from Python: their state, output and result."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from rpm_client.functions import FunctionCall, ResultMissingError, TaskError, function_result
from rpm_client.logs import OVER
from rpm_client.task_states import task_states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpm_client.client import Client

TAIL = 2000


class TaskFuture:
    """A task that was submitted, and what comes of it.

    Args:
        call: of a function; a command has none, and its result is its exit code.
        error: why the server refused it, in a bulk of tasks.
    """

    def __init__(
        self,
        client: Client,
        task_id: str,
        *,
        call: FunctionCall | None = None,
        error: Exception | None = None,
    ) -> None:
        self._client = client
        self._call = call
        self._error = error
        self.id = task_id

    def __repr__(self) -> str:
        return f"TaskFuture({self.id!r})"

    def state(self) -> str:
        """The state of the task now."""
        self._check()
        return str(self._client.task(self.id)["state"])

    def done(self) -> bool:
        """Whether the task has ended, or is rejected or a draft again."""
        return self._error is not None or self.state() in OVER

    def result(self, timeout_s: float | None = None) -> Any:
        """What the function returned, or 0 of a command; waits until the task has ended.

        Raises:
            TaskError: the function raised, or the task failed, was aborted or left its queue.
            TimeoutError: it has not ended in time; the task goes on.
            RefusedError: the server refused the task in a bulk.
        """
        task = self._ended(timeout_s)
        if self._call is not None and task["state"] in {"completed", "failed"}:
            log = self._log()
            try:
                return function_result(self._call, log)
            except ResultMissingError as error:
                raise self._failure(task, str(error), log) from None
        if task["state"] == "completed":
            return 0
        raise self._failure(task, "", self._client.log(self.id)["text"])

    def logs(self) -> Iterator[str]:
        """What the task writes, until it has ended."""
        self._check()
        return self._client.log_follow(self.id)

    def explain(self) -> str:
        """Why the task waits, in a sentence."""
        self._check()
        found = self._client.explain(self.id)
        return str(found["sentence"] or f"It does not wait: its state is {found['state']}.")

    def abort(self) -> None:
        """End the task."""
        self._check()
        self._client.task_do(self.id, "abort")

    def _failure(self, task: dict[str, Any], problem: str, log: str) -> TaskError:
        """How the task ended, and the end of its log."""
        code = "" if task["exit_code"] is None else f" with exit code {task['exit_code']}"
        words = [f"Task {self.id} is {task['state']}{code}.", task["state_detail"], problem]
        return TaskError(" ".join(filter(None, words)), traceback_text=log[-TAIL:])

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _ended(self, timeout_s: float | None) -> dict[str, Any]:
        self._check()
        until = None if timeout_s is None else monotonic() + timeout_s
        task: dict[str, Any] = {}
        for task, pause in task_states(self._client, self.id):
            is_late = until is not None and monotonic() + pause > until
            if is_late and task["state"] not in OVER:
                raise TimeoutError(f"Task {self.id} is {task['state']} after {timeout_s} s.")
        return task

    def _log(self) -> str:
        """All that the first member wrote."""
        parts, offset = [], 0
        while True:
            part = self._client.log(self.id, offset=offset)
            parts.append(part["text"])
            if part["next_offset"] == offset:
                return "".join(parts)
            offset = part["next_offset"]
