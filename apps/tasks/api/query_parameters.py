"""Query parameters, versions and raw bodies of requests."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from apps.accounts.models import User
from apps.core.api import if_match, whole_parameter
from apps.core.errors import BadInput, NotAllowed, Stale
from apps.core.suggestions import did_you_mean
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Attempt, Task
from apps.tasks.selectors.attempts import (
    LOG_BYTES,
    MOST_LOG_BYTES,
    LogPart,
    latest_attempt,
    log_from,
    log_tail,
)
from apps.tasks.selectors.visibility import TaskPermissions

FILTERS = ("state", "queue", "policy", "owner", "tag", "q", "array", "id")
_PAGING = ("limit", "cursor")
_ID_BEGINNING = re.compile(r"[0-9a-f]{6,8}[0-9a-f-]{0,28}")
FILTER_PARAMETERS = [
    OpenApiParameter("state", description="Several, separated by commas."),
    OpenApiParameter("queue", description="Name or id."),
    OpenApiParameter("policy", description="Name or id."),
    OpenApiParameter("owner", description="User name."),
    OpenApiParameter("tag"),
    OpenApiParameter("q", description="Part of the name."),
    OpenApiParameter(
        "array",
        OpenApiTypes.UUID,
        description="The elements of this array, which are left out otherwise.",
    ),
    OpenApiParameter(
        "id", description="Its first characters, 6 at least; also of elements of arrays."
    ),
]


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A part of a log; `attempt` is None where there is none yet.

    `is_raw` keeps terminal control sequences.
    """

    attempt: Attempt | None
    rank: int
    part: LogPart
    is_text: bool
    is_raw: bool


def user_of(request: Request) -> User:
    """The signed-in user of the request."""
    user = request.user
    if not isinstance(user, User):
        raise NotAllowed("Sign in first.")
    return user


def body_of(request: Request) -> bytes:
    """The raw body (`parsers.py`); empty where there is none."""
    data: object = request.data
    return data if isinstance(data, bytes) else b""


def list_filters(request: Request) -> Mapping[str, str]:
    """The filters of a list.

    Raises:
        BadInput: a filter is unknown, or a state is.
    """
    given = {name: request.query_params[name].strip() for name in request.query_params}
    filters_check(given, others=_PAGING)
    return {name: value for name, value in given.items() if name in FILTERS}


def filters_check(given: Mapping[str, str], *, others: tuple[str, ...] = ()) -> None:
    """Check the names of filters and the states in them.

    Args:
        others: further names that may be given.

    Raises:
        BadInput: a filter is unknown, or a state is.
    """
    for name, value in given.items():
        if name not in FILTERS + others:
            problem = f"is not a known filter{did_you_mean(name, FILTERS)}"
            raise BadInput(f"{name} {problem}", fields={name: problem})
        if "\0" in value:
            raise BadInput(f"{name} holds a NUL character.", fields={name: "holds a NUL character"})
    for state in filter(None, given.get("state", "").split(",")):
        if state not in TaskState.values:
            problem = f"{state!r} is none of {', '.join(TaskState.values)}"
            raise BadInput(f"state: {problem}.", fields={"state": problem})
    if given.get("array") and not _is_uuid(given["array"]):
        raise BadInput("array must be the id of a task.", fields={"array": "must be an id"})
    if given.get("id") and not _ID_BEGINNING.fullmatch(given["id"].lower()):
        problem = "must be an id, or its first characters, at least 6"
        raise BadInput(f"id {problem}.", fields={"id": problem})


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def log_query(request: Request, task: Task, permissions: TaskPermissions) -> LogQuery:
    """The part of the log that the request names.

    Raises:
        NotAllowed: the user sees the task and may not read its log.
        BadInput: a parameter is no number, or out of bounds.
    """
    if not permissions.log:
        raise NotAllowed("You see this task, but its log is its owner's.")
    generation = generation_parameter(request)
    rank = whole_parameter(request, "rank", lowest=0, highest=99_999) or 0
    offset = whole_parameter(request, "offset", lowest=0, highest=2**62)
    most = whole_parameter(request, "limit", lowest=1, highest=MOST_LOG_BYTES) or LOG_BYTES
    attempt = latest_attempt(task, generation)
    if attempt is None:
        part = LogPart(b"", offset or 0, offset or 0)
    elif offset is None:
        part = log_tail(attempt, rank=rank, most=most)
    else:
        part = log_from(attempt, rank=rank, offset=offset, most=most)
    is_text = request.query_params.get("as", "json") == "text"
    is_raw = request.query_params.get("raw", "").lower() in {"1", "true", "yes"}
    return LogQuery(attempt, rank, part, is_text, is_raw)


def generation_parameter(request: Request) -> int | None:
    """The query parameter `generation`; None if it is missing.

    Raises:
        BadInput: it is not a number, or out of bounds.
    """
    return whole_parameter(request, "generation", lowest=1, highest=2**31 - 1)


def version_of(task: Task) -> int:
    """The ETag of a task: the microsecond of its last change."""
    return int(task.changed_at.timestamp() * 1_000_000)


def check_version(request: Request, task: Task) -> datetime | None:
    """Where the request names a version, it must be this one.

    Returns:
        The time of the change that made the version, which the service compares again once it has
        locked the task; None: the request names none.

    Raises:
        Stale: it names another.
    """
    given, now = if_match(request), version_of(task)
    if given is not None and given != now:
        wrong = f'is another version than the current one, "{now}"'
        raise Stale("The task changed since you read it.", fields={"If-Match": wrong})
    return None if given is None else task.changed_at
