"""What passes say about single tasks: why one waits, and whether one would run."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import api_view, parser_classes
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api.permissions import allows_acting, scope_to_write
from apps.accounts.models import Scope
from apps.allocation.api.serializers import CheckSerializer, ExplanationSerializer
from apps.allocation.explanation import ReasonPayload, expected_start, explain_task
from apps.allocation.whatif.task_checks import task_check
from apps.core.units import milli_text
from apps.tasks.api.parsers import RawJsonParser
from apps.tasks.api.query_parameters import body_of, user_of
from apps.tasks.api.serializers import ErrorSerializer
from apps.tasks.models import Task
from apps.tasks.selectors.idle_attempts import idle_warnings_of
from apps.tasks.selectors.visibility import visible_task
from apps.tasks.task_spec import TaskSpec, read_spec

_ERRORS = {"4XX": ErrorSerializer}
# Fields of the details of a reason that are amounts of its `key`.
_AMOUNTS = frozenset({"needed", "free", "largest", "usage", "limit"})


@extend_schema(
    operation_id="tasks_explain",
    tags=["tasks"],
    responses={200: ExplanationSerializer, **_ERRORS},
)
@allows_acting
@api_view()
def explain(request: Request, pk: str) -> Response:
    """Why a task waits, as the last pass said it, in sentences; what it waited for before."""
    user = user_of(request)
    task = visible_task(user, pk)
    found, expected = explain_task(user, task), expected_start(task)
    return Response(
        {
            "state": found.state,
            **_dominant(found.reasons),
            "reasons": list(map(_reason, found.reasons)),
            "position": found.position,
            "expected_start": asdict(expected) if expected and expected.earliest else None,
            "no_estimate": expected.sentence if expected and not expected.earliest else "",
            "at": found.at,
            "idle_warning": _idle_warning(task),
            "history": [{"at": past.at, **_reason(past.reason)} for past in found.history],
        }
    )


def _idle_warning(task: Task) -> dict[str, Any] | None:
    """Of a running task that the reader sees with its queue."""
    found = idle_warnings_of([task.pk]) if task.queue is not None else {}
    warning = found.get(task.pk)
    return {"since": warning.since, "stop_at": warning.stop_at} if warning else None


@extend_schema(
    operation_id="tasks_check",
    tags=["tasks"],
    request=TaskSpec,
    responses={200: CheckSerializer, **_ERRORS},
)
@allows_acting
@scope_to_write(Scope.ENQUEUE)
@api_view(["POST"])
@parser_classes([RawJsonParser])
def check(request: Request) -> Response:
    """Whether a task would run if it were enqueued now; nothing is stored.

    Takes what enqueueing takes, and refuses what it refuses.
    """
    spec = read_spec(body_of(request))
    found = task_check(actor=user_of(request), spec=spec)
    return Response(
        {
            **asdict(found),
            **_dominant(found.reasons),
            "reasons": list(map(_reason, found.reasons)),
            "sentence": found.sentence,
            "position": found.position,
        }
    )


def _reason(reason: ReasonPayload) -> dict[str, Any]:
    details = [
        {name: milli_text(one[name]) if name in _AMOUNTS else one[name] for name in one}
        for one in reason.details
    ]
    return {**asdict(reason), "details": details}


def _dominant(reasons: tuple[ReasonPayload, ...]) -> dict[str, Any]:
    names = ("code", "sentence", "help")
    return {name: getattr(reasons[0], name) if reasons else "" for name in names}
