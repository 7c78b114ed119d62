"""`/api/v1/tasks/bulk-actions/`: one action on many tasks."""

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import msgspec
from drf_spectacular.utils import extend_schema
from msgspec import Meta
from rest_framework import serializers
from rest_framework.decorators import api_view, parser_classes
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api.permissions import allows_acting, scope_to_write
from apps.accounts.models import Scope, User
from apps.core.api import error_body
from apps.core.errors import BadInput
from apps.tasks.api.bodies import read_body
from apps.tasks.api.parsers import RawJsonParser
from apps.tasks.api.query_parameters import FILTERS, body_of, filters_check, user_of
from apps.tasks.api.serializers import ErrorSerializer
from apps.tasks.selectors.visibility import tasks_matching_filters
from apps.tasks.services.bulk_actions import (
    MOST_TASKS,
    BulkAction,
    BulkResult,
    BulkVerb,
    tasks_act,
)


class BulkActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either the ids of the tasks, or a filter with at least one entry."""

    action: BulkVerb
    tasks: list[UUID] | None = None
    filter: Annotated[
        dict[str, str] | None, Meta(description=f"Of {', '.join(FILTERS)}, as in lists.")
    ] = None
    before: Annotated[
        UUID | None,
        Meta(description="Next to a filter: tasks older than this one, the last of the results."),
    ] = None
    queue: Annotated[
        str | int | None, Meta(description="Of `change-queue`; another one of `run-again`.")
    ] = None
    priority: Annotated[int | None, Meta(description="Of `priority`.")] = None


class BulkResultSerializer(serializers.Serializer[Any]):
    """What became of one task; name and state are null where it is not visible."""

    task = serializers.UUIDField()
    name = serializers.CharField(allow_null=True)
    state = serializers.CharField(allow_null=True)
    status = serializers.IntegerField(help_text="200, or that of the error.")
    error = ErrorSerializer(allow_null=True)


class BulkResultsSerializer(serializers.Serializer[Any]):
    """`is_more`: the filter matches further tasks; send the last id as `before`."""

    done = serializers.IntegerField()
    failed = serializers.IntegerField()
    is_more = serializers.BooleanField()
    results = BulkResultSerializer(many=True)


@extend_schema(
    operation_id="tasks_bulk_actions",
    tags=["tasks"],
    request=BulkActionBody,
    responses={200: BulkResultsSerializer, "4XX": ErrorSerializer},
)
@allows_acting
@scope_to_write(Scope.ENQUEUE)
@api_view(["POST"])
@parser_classes([RawJsonParser])
def bulk_actions(request: Request) -> Response:
    """Do the same with up to 1,000 tasks; each has its own result, in order.

    A filter takes the newest of the tasks that match.
    """
    user, view = user_of(request), request.parser_context["view"]
    body = read_body(body_of(request), BulkActionBody)
    action = BulkAction(body.action, queue=body.queue, priority=body.priority)
    ids, is_more = _ids(user, body)
    results = tasks_act(
        actor=user,
        ids=ids,
        action=action,
        check=lambda task: view.check_object_permissions(request, task),
    )
    failed = sum(one.error is not None for one in results)
    return Response(
        {
            "done": len(results) - failed,
            "failed": failed,
            "is_more": is_more,
            "results": list(map(_payload, results)),
        }
    )


def _ids(user: User, body: BulkActionBody) -> tuple[list[UUID], bool]:
    """The ids of the tasks, and whether the filter matches more."""
    if (body.tasks is None) == (body.filter is None):
        problem = "is missing: give the ids of tasks, or a filter, and not both"
        raise BadInput(f"tasks {problem}.", fields={"tasks": problem})
    if body.tasks is not None:
        return body.tasks, False
    filters = _filters(body.filter or {})
    matching = tasks_matching_filters(user, filters)
    if filters.get("state"):
        # What is done with an array is done with elements in other states, too.
        matching = matching.filter(state__in=filters["state"].split(","))
    if body.before is not None:
        matching = matching.filter(pk__lt=body.before)
    found = list(matching.order_by("-pk").values_list("pk", flat=True)[: MOST_TASKS + 1])
    return found[:MOST_TASKS], len(found) > MOST_TASKS


def _filters(given: Mapping[str, str]) -> Mapping[str, str]:
    """A filter that leaves something out: an empty one would name all visible tasks."""
    filters = {name: value.strip() for name, value in given.items()}
    filters_check(filters)
    if not any(filters.values()):
        problem = f"is empty: give one of {', '.join(FILTERS)}"
        raise BadInput(f"filter {problem}.", fields={"filter": problem})
    return filters


def _payload(result: BulkResult) -> dict[str, Any]:
    task, error = result.task, result.error
    return {
        "task": result.id,
        "name": task.name if task is not None else None,
        "state": task.state if task is not None else None,
        "status": error.status if error is not None else 200,
        "error": error_body(error) if error is not None else None,
    }
