"""`submit` and `map` of the client: commands and functions become tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rpm_client.bounds import MANY, NAME_LENGTH
from rpm_client.errors import RefusedError, UnreachableError
from rpm_client.functions import KEY_NAME, FunctionCall, ResourceSettings, function_call
from rpm_client.futures import TaskFuture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rpm_client.client import Client

# docs/bounds.md: bytes of a bulk.
BULK_BYTES = 15_000_000


class Submission:
    """The part of a client that submits commands and functions."""

    def submit(
        self,
        work: Callable[..., Any] | Sequence[str],
        *args: Any,
        queue: str,
        resources: ResourceSettings | None = None,
        kwargs: Mapping[str, Any] | None = None,
        result: str = "json",
        python: str = "python3",
        **fields: Any,
    ) -> TaskFuture:
        """Enqueue a command, or a function with its arguments.

        A function needs cloudpickle here and in the image, which has the same version of Python.

        Args:
            kwargs: of the function.
            result: how the function's result comes back: json, or pickle of one's own task.
            python: the interpreter in the image.
            fields: of the task, under the names of REST, such as `image`.
        """
        call = _call(work, args, dict(kwargs or {}), result=result, python=python)
        client = cast("Client", self)
        task = client.task_submit(_description(work, call, queue, resources, fields))
        return TaskFuture(client, task["id"], call=call)

    def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        queue: str,
        resources: ResourceSettings | None = None,
        result: str = "json",
        python: str = "python3",
        **fields: Any,
    ) -> list[TaskFuture]:
        """Enqueue one task for each item, many in a request; the futures are in their order.

        A task that the server refuses raises when its result is read. So do the remaining tasks
        where a later request fails: those that were enqueued before keep their futures.
        """
        calls = [function_call(function, (one,), {}, kind=result, python=python) for one in items]
        tasks = [_description(function, call, queue, resources, fields) for call in calls]
        client = cast("Client", self)
        futures: list[TaskFuture] = []
        for start, end in _bulks(tasks):
            try:
                answers = client.task_bulk(tasks[start:end])
            except (RefusedError, UnreachableError) as error:
                if not futures:
                    raise
                rest = calls[start:]
                return [*futures, *(TaskFuture(client, "", call=one, error=error) for one in rest)]
            for call, answer in zip(calls[start:end], answers):
                futures.append(_future(client, call, answer))
        return futures


def _call(
    work: Callable[..., Any] | Sequence[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    result: str,
    python: str,
) -> FunctionCall | None:
    if callable(work):
        return function_call(work, args, kwargs, kind=result, python=python)
    if args or kwargs or isinstance(work, str):
        raise TypeError('A command is one list of words, such as ["python", "train.py"].')
    return None


def _description(
    work: Any,
    call: FunctionCall | None,
    queue: str,
    resources: ResourceSettings | None,
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    command = call.command if call else list(work)
    name = getattr(work, "__name__", "function") if call else " ".join(command)
    given = {"name": name[:NAME_LENGTH], **fields, "queue": queue, "command": command}
    if call:
        given["secrets"] = {**fields.get("secrets", {}), KEY_NAME: call.key}
    return {**given, **(resources.fields() if resources else {})}


def _bulks(tasks: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """From where to where each request goes."""
    start, size = 0, 0
    for number, task in enumerate(tasks):
        length = len(str(task))
        if number > start and (number - start == MANY or size + length > BULK_BYTES):
            yield start, number
            start, size = number, 0
        size += length
    if start < len(tasks):
        yield start, len(tasks)


def _future(client: Client, call: FunctionCall, answer: Mapping[str, Any]) -> TaskFuture:
    error = answer["error"]
    if error is None:
        return TaskFuture(client, answer["task"]["id"], call=call)
    refused = RefusedError(answer["status"], error["code"], error["detail"], error["fields"])
    return TaskFuture(client, "", call=call, error=refused)
