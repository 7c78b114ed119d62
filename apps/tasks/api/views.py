"""`/api/v1/tasks/`."""

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.selectors import pools_visible_to
from apps.accounts.models import Scope
from apps.core.api import KeysetPagination, error_body
from apps.core.errors import BadInput, RpmError
from apps.core.schema import changes_of, list_of
from apps.core.terminal import plain
from apps.tasks.api.attempt_payloads import (
    attempt_payload,
    effective_vault_payload,
    gpu_use_payload,
    idle_rule_payload,
    log_payload,
)
from apps.tasks.api.bodies import (
    IdleBody,
    PriorityBody,
    QueueBody,
    ReorderBody,
    RunAgainBody,
    read_body,
    read_changes,
    read_many,
    required_queue,
)
from apps.tasks.api.parsers import RawBulkParser, RawJsonParser
from apps.tasks.api.query_parameters import (
    FILTER_PARAMETERS,
    body_of,
    check_version,
    generation_parameter,
    list_filters,
    log_query,
    user_of,
    version_of,
)
from apps.tasks.api.serializers import (
    AttemptSerializer,
    BulkAnswerSerializer,
    EffectiveVaultSerializer,
    ErrorSerializer,
    GpuUseStepsSerializer,
    IdleRuleSerializer,
    LogSerializer,
)
from apps.tasks.models import Task
from apps.tasks.selectors.arrays import array_counts
from apps.tasks.selectors.attempts import attempts_of, latest_attempt
from apps.tasks.selectors.idle_attempts import idle_rule_of
from apps.tasks.selectors.vaults import effective_vault
from apps.tasks.selectors.visibility import (
    is_shown_alone,
    task_permissions,
    tasks_matching_filters,
    visible_task,
    without_hidden_queues,
)
from apps.tasks.services.attempts.checkpoints import task_checkpoint
from apps.tasks.services.draft_removal import draft_delete
from apps.tasks.services.enqueue.bulk import tasks_enqueue_many
from apps.tasks.services.enqueue.idempotency import idempotency_of
from apps.tasks.services.enqueue.submission import (
    task_change,
    task_create,
    task_enqueue,
    task_resume,
    task_run_again,
    task_submit,
)
from apps.tasks.services.holds import task_hold, task_release
from apps.tasks.services.idle_rules import task_set_idle_exemption
from apps.tasks.services.queue_order import (
    task_change_queue,
    task_reorder,
    task_set_priority,
)
from apps.tasks.services.stop import task_abort, task_dequeue
from apps.tasks.task_payloads import TaskDetail, TaskSummary, task_detail, task_summary
from apps.tasks.task_spec import TaskSpec, read_spec

_ERRORS = {"4XX": ErrorSerializer}
_DETAIL = extend_schema(request=None, responses={200: TaskDetail, **_ERRORS})
_TO_QUEUE = extend_schema(request=QueueBody, responses={200: TaskDetail, **_ERRORS})
_IF_MATCH = OpenApiParameter("If-Match", location="header", description="The ETag.")
_KEY = OpenApiParameter(
    "Idempotency-Key", location="header", description="The same key and body give the same task."
)
_LOG = [
    OpenApiParameter("generation", OpenApiTypes.INT, description="Default: the last."),
    OpenApiParameter("rank", OpenApiTypes.INT, description="Member of a gang; default 0."),
    OpenApiParameter("offset", OpenApiTypes.INT, description="Default: the end of the log."),
    OpenApiParameter("limit", OpenApiTypes.INT, description="Bytes."),
    OpenApiParameter("as", enum=["json", "text"], description="Default: json."),
    OpenApiParameter(
        "raw",
        OpenApiTypes.BOOL,
        description="With colours and other control sequences; default: no.",
    ),
]

_GENERATION = OpenApiParameter(
    "generation",
    OpenApiTypes.INT,
    description="Of an attempt; default: the live attempt, else the current state.",
)


@extend_schema_view(
    list=extend_schema(parameters=FILTER_PARAMETERS, responses=TaskSummary),
    retrieve=_DETAIL,
    create=extend_schema(
        request=TaskSpec,
        parameters=[_KEY],
        responses={201: TaskDetail, **_ERRORS},
    ),
    partial_update=extend_schema(
        request=changes_of(TaskSpec),
        parameters=[_IF_MATCH],
        responses={200: TaskDetail, **_ERRORS},
    ),
)
class TaskViewSet(viewsets.GenericViewSet[Task]):
    """The user's own tasks, those of queues that the user sees, and those that a rule shows."""

    queryset = Task.objects.none()
    pagination_class = KeysetPagination
    scope_to_write = Scope.ENQUEUE
    allows_acting = True
    filter_backends = []
    parser_classes = [RawJsonParser]
    lookup_value_regex = "[^/]+"

    def list(self, request: Request) -> Response:
        tasks = tasks_matching_filters(user_of(request), list_filters(request))
        page = self.paginate_queryset(tasks) or []
        shown = without_hidden_queues(page)
        counts = array_counts(shown)
        return self.get_paginated_response([task_summary(task, counts) for task in shown])

    def create(self, request: Request) -> Response:
        """Enqueue a task; without a queue it is kept as a draft."""
        user = user_of(request)
        body = body_of(request)
        spec = read_spec(body)
        keep = idempotency_of(request.headers.get("Idempotency-Key", ""), body)
        make = task_create if spec.queue is None else task_submit
        task = make(actor=user, spec=spec, idempotency=keep)
        return self._response(request, task, status=status.HTTP_201_CREATED)

    def retrieve(self, request: Request, pk: str) -> Response:
        return self._response(request, self._task(request, pk))

    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a draft."""
        user = user_of(request)
        task = self._task(request, pk)
        check_version(request, task)
        task = task_change(actor=user, task=task, changes=read_changes(body_of(request)))
        return self._response(request, task)

    @extend_schema(parameters=[_IF_MATCH], responses={204: None, **_ERRORS})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a draft that never ran; of other tasks, retention removes what has ended."""
        task = self._task(request, pk)
        version = check_version(request, task)
        draft_delete(actor=user_of(request), task=task, version=version)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @_TO_QUEUE
    @action(detail=True, methods=["post"])
    def enqueue(self, request: Request, pk: str) -> Response:
        """Put a draft into a queue."""
        user = user_of(request)
        task = self._task(request, pk)
        body = read_body(body_of(request), QueueBody)
        return self._response(
            request, task_enqueue(actor=user, task=task, queue=required_queue(body))
        )

    @_DETAIL
    @action(detail=True, methods=["post"])
    def dequeue(self, request: Request, pk: str) -> Response:
        """Take a waiting task out of its queue; it is a draft again."""
        user = user_of(request)
        return self._response(request, task_dequeue(actor=user, task=self._task(request, pk)))

    @_DETAIL
    @action(detail=True, methods=["post"])
    def hold(self, request: Request, pk: str) -> Response:
        """Put a waiting task on hold: it keeps its place, and no pass starts it."""
        user = user_of(request)
        return self._response(request, task_hold(actor=user, task=self._task(request, pk)))

    @_DETAIL
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: str) -> Response:
        """End the hold of a waiting task."""
        user = user_of(request)
        return self._response(request, task_release(actor=user, task=self._task(request, pk)))

    @_DETAIL
    @action(detail=True, methods=["post"])
    def abort(self, request: Request, pk: str) -> Response:
        """End a task: at once if it does not run, else as soon as it has stopped."""
        user = user_of(request)
        return self._response(request, task_abort(actor=user, task=self._task(request, pk)))

    @_DETAIL
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """Put a paused or rejected task back into its queue."""
        user = user_of(request)
        return self._response(request, task_resume(actor=user, task=self._task(request, pk)))

    @extend_schema(request=RunAgainBody, responses={200: TaskDetail, **_ERRORS})
    @action(detail=True, methods=["post"], url_path="run-again")
    def run_again(self, request: Request, pk: str) -> Response:
        """Enqueue an ended task again; of an array, what did not complete, as a new array."""
        user = user_of(request)
        task = self._task(request, pk)
        body = read_body(body_of(request), RunAgainBody)
        again = task_run_again(actor=user, task=task, queue=body.queue, is_all=body.all)
        return self._response(request, again)

    @_DETAIL
    @action(detail=True, methods=["post"])
    def checkpoint(self, request: Request, pk: str) -> Response:
        """Report that the task has saved its state now: a preemption loses nothing older."""
        user = user_of(request)
        task = self._task(request, pk)
        task_checkpoint(actor=user, task=task)
        return self._response(request, task)

    @extend_schema(
        request=PriorityBody, parameters=[_IF_MATCH], responses={200: TaskDetail, **_ERRORS}
    )
    @action(detail=True, methods=["post"])
    def priority(self, request: Request, pk: str) -> Response:
        """Change the priority of a draft or a waiting task."""
        user = user_of(request)
        task = self._task(request, pk)
        version = check_version(request, task)
        body = read_body(body_of(request), PriorityBody)
        changed = task_set_priority(actor=user, task=task, priority=body.priority, version=version)
        return self._response(request, changed)

    @extend_schema(
        request=ReorderBody, parameters=[_IF_MATCH], responses={200: TaskDetail, **_ERRORS}
    )
    @action(detail=True, methods=["post"])
    def reorder(self, request: Request, pk: str) -> Response:
        """Move a waiting task among its equals; for users who manage the queue."""
        user = user_of(request)
        task = self._task(request, pk)
        version = check_version(request, task)
        body = read_body(body_of(request), ReorderBody)
        moved = task_reorder(
            actor=user, task=task, move=body.move, other=body.other, version=version
        )
        return self._response(request, moved)

    @extend_schema(
        request=QueueBody, parameters=[_IF_MATCH], responses={200: TaskDetail, **_ERRORS}
    )
    @action(detail=True, methods=["post"], url_path="change-queue")
    def change_queue(self, request: Request, pk: str) -> Response:
        """Move a waiting task to another queue."""
        user = user_of(request)
        task = self._task(request, pk)
        version = check_version(request, task)
        body = read_body(body_of(request), QueueBody)
        moved = task_change_queue(
            actor=user, task=task, queue=required_queue(body), version=version
        )
        return self._response(request, moved)

    @extend_schema(
        parameters=_LOG,
        responses={
            (200, "application/json"): LogSerializer,
            (200, "text/plain"): OpenApiTypes.STR,
            **_ERRORS,
        },
    )
    @action(detail=True)
    def logs(self, request: Request, pk: str) -> Response | HttpResponse:
        """A member's output: its end, or the part from `offset`."""
        user = user_of(request)
        task = self._task(request, pk)
        query = log_query(request, task, task_permissions(user, task))
        if query.is_text:
            data = query.part.data
            shown = data if query.is_raw else plain(data.decode(errors="replace"))
            return HttpResponse(shown, content_type="text/plain; charset=utf-8")
        return Response(log_payload(query))

    @extend_schema(responses={200: AttemptSerializer(many=True), **_ERRORS})
    @action(detail=True, pagination_class=None)
    def attempts(self, request: Request, pk: str) -> Response:
        """The admissions of a task, the latest first."""
        user = user_of(request)
        task = self._task(request, pk)
        has_content = task_permissions(user, task).content
        # Where a task runs is not said of one that a rule shows alone.
        seen = [] if is_shown_alone(task) else pools_visible_to(user).values_list("pk", flat=True)
        pools = set(seen)
        return Response(
            [
                attempt_payload(attempt, has_content=has_content, pools=pools)
                for attempt in attempts_of(task)
            ]
        )

    @extend_schema(parameters=[_GENERATION], responses={200: GpuUseStepsSerializer, **_ERRORS})
    @action(detail=True, url_path="gpu-use", pagination_class=None)
    def gpu_use(self, request: Request, pk: str) -> Response:
        """How the last attempt, or that of `generation`, used its GPUs over time."""
        attempt = latest_attempt(self._task(request, pk), generation_parameter(request))
        return Response(gpu_use_payload(attempt))

    @extend_schema(request=None, responses={200: IdleRuleSerializer, **_ERRORS})
    @action(detail=True, url_path="idle-rule", pagination_class=None)
    def idle_rule(self, request: Request, pk: str) -> Response:
        """What the queue says of idle tasks, and whether this one was warned or is exempt."""
        return Response(idle_rule_payload(idle_rule_of(self._task(request, pk))))

    @extend_schema(request=IdleBody, responses={200: IdleRuleSerializer, **_ERRORS})
    @idle_rule.mapping.put
    def idle_exemption(self, request: Request, pk: str) -> Response:
        """Exempt the task from the rule, or end that; for users who manage the queue."""
        user = user_of(request)
        task = self._task(request, pk)
        body = read_body(body_of(request), IdleBody)
        task_set_idle_exemption(actor=user, task=task, is_exempt=body.is_exempt)
        return Response(idle_rule_payload(idle_rule_of(task)))

    @extend_schema(parameters=[_GENERATION], responses={200: EffectiveVaultSerializer, **_ERRORS})
    @action(detail=True, url_path="effective-vault", pagination_class=None)
    def effective_vault(self, request: Request, pk: str) -> Response:
        """The values that vaults give the task, each with its vault; secrets are hidden."""
        user = user_of(request)
        task = visible_task(user, pk)
        found = effective_vault(user, task, generation_parameter(request))
        return Response(effective_vault_payload(found), headers={"Cache-Control": "no-store"})

    @extend_schema(
        request=list_of(TaskSpec),
        responses={200: BulkAnswerSerializer(many=True), **_ERRORS},
    )
    @action(detail=False, methods=["post"], parser_classes=[RawBulkParser], pagination_class=None)
    def bulk(self, request: Request) -> Response:
        """Enqueue up to 1,000 tasks; each has its own answer, in order."""
        if "Idempotency-Key" in request.headers:
            # Ignoring it would enqueue twice what the sender believes safe to repeat.
            problem = "is for single tasks: leave it out"
            raise BadInput(f"Idempotency-Key {problem}.", fields={"Idempotency-Key": problem})
        items = read_many(body_of(request))
        answers = tasks_enqueue_many(actor=user_of(request), items=items)
        return Response([self._bulk_answer(answer) for answer in answers])

    def _task(self, request: Request, pk: str) -> Task:
        """The task, where the credential's scope covers the action."""
        task = visible_task(user_of(request), pk)
        self.check_object_permissions(request, task)
        return task

    def _bulk_answer(self, answer: Task | RpmError) -> dict[str, Any]:
        if isinstance(answer, RpmError):
            return {"task": None, "error": error_body(answer), "status": answer.status}
        payload = task_detail(answer, has_content=True, counts=array_counts([answer]))
        return {"task": payload, "error": None, "status": status.HTTP_201_CREATED}

    def _response(
        self, request: Request, task: Task, *, status: int = status.HTTP_200_OK
    ) -> Response:
        permissions = task_permissions(user_of(request), task)
        return Response(
            task_detail(task, has_content=permissions.content, counts=array_counts([task])),
            status=status,
            headers={"ETag": f'"{version_of(task)}"'},
        )
