"""Request bodies other than task descriptions."""

from typing import Any, TypeVar
from uuid import UUID

import msgspec

from apps.core.errors import BadInput, RpmError
from apps.core.parsers import not_json
from apps.tasks.services.enqueue.bulk import MANY
from apps.tasks.services.queue_order import OrderMove
from apps.tasks.task_spec import CHANGEABLE, DependencySpec, TaskSpec, read_spec
from apps.tasks.type_errors import type_error

Body = TypeVar("Body", bound=msgspec.Struct)


class QueueBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`queue`: name or id; left out where the task knows its queue."""

    queue: str | int | None = None


class RunAgainBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`queue`: name or id; left out: its last one. `all`: of an array, also what completed."""

    queue: str | int | None = None
    all: bool = False


class PriorityBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    priority: int


class ReorderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`other`: the task to move before or after; only for these two moves."""

    move: OrderMove
    other: UUID | None = None


class DependenciesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after`: what the task waits for from now on; empty: nothing."""

    after: list[DependencySpec]


class IdleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    is_exempt: bool


def read_body(body: bytes, kind: type[Body]) -> Body:
    """The body of an action; an empty one means that every field is left out.

    Raises:
        BadInput: it is not JSON, or a field is unknown or of another type.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise type_error(str(error), kind.__struct_fields__, struct=kind) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(str(error), body=body) from error


def required_queue(body: QueueBody) -> str | int:
    """The queue of a body that has to name one.

    Raises:
        BadInput: it does not.
    """
    if body.queue is None:
        raise BadInput("queue is missing.", fields={"queue": "is missing: give its name or id"})
    return body.queue


def read_changes(body: bytes) -> dict[str, Any]:
    """The fields that a PATCH names.

    Raises:
        BadInput: it is no JSON object.
    """
    try:
        changes = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise type_error(str(error), CHANGEABLE, struct=TaskSpec) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(str(error), body=body) from error
    return changes


def read_many(body: bytes) -> list[TaskSpec | RpmError]:
    """The descriptions of a bulk request, or the error of each.

    Raises:
        BadInput: the body is no list, or a longer one than allowed.
    """
    try:
        items = msgspec.json.decode(body, type=list[msgspec.Raw])
    except msgspec.ValidationError as error:
        raise BadInput(
            "The body must be a list of tasks.", fields={"body": "must be a list of tasks"}
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(str(error), body=body) from error
    if len(items) > MANY:
        problem = f"has {len(items)} tasks: at most {MANY} in one request"
        raise BadInput(f"The body {problem}.", fields={"body": problem})
    return [_description_or_error(item) for item in items]


def _description_or_error(item: msgspec.Raw) -> TaskSpec | RpmError:
    try:
        return read_spec(item)
    except RpmError as error:
        return error
