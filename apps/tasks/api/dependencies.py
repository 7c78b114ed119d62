"""`/api/v1/tasks/<id>/dependencies/`: what a task waits for."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import api_view, parser_classes
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.api.permissions import allows_acting, scope_to_write
from apps.accounts.models import Scope
from apps.tasks.api.bodies import DependenciesBody, read_body
from apps.tasks.api.parsers import RawJsonParser
from apps.tasks.api.query_parameters import body_of, user_of
from apps.tasks.api.serializers import DependencySerializer, ErrorSerializer
from apps.tasks.models.dependencies import DependencyKind
from apps.tasks.selectors.dependencies import dependencies_of
from apps.tasks.selectors.visibility import is_shown_alone, visible_task
from apps.tasks.services.dependencies import Dependency, task_set_dependencies

_ANSWER = {200: DependencySerializer(many=True), "4XX": ErrorSerializer}


@extend_schema(
    methods=["GET"], operation_id="tasks_dependencies", tags=["tasks"], responses=_ANSWER
)
@extend_schema(
    methods=["PUT"],
    operation_id="tasks_set_dependencies",
    tags=["tasks"],
    request=DependenciesBody,
    responses=_ANSWER,
)
@allows_acting
@scope_to_write(Scope.ENQUEUE)
@api_view(["GET", "PUT"])
@parser_classes([RawJsonParser])
def dependencies(request: Request, pk: str) -> Response:
    """The tasks that a task waits for; PUT replaces them, for a waiting task."""
    user = user_of(request)
    task = visible_task(user, pk)
    if request.method == "PUT":
        view: Any = request.parser_context["view"]
        view.check_object_permissions(request, task)
        body = read_body(body_of(request), DependenciesBody)
        after = [Dependency(one.task, DependencyKind(one.when)) for one in body.after]
        task_set_dependencies(actor=user, task=task, after=after)
    # Of a task that a rule shows alone, nothing is said that leads to others.
    found = [] if is_shown_alone(task) else dependencies_of(user, task)
    return Response(list(map(asdict, found)))
