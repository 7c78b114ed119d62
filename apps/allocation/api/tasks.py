"""What passes say about single tasks: why one waits, and whether one would run."""

from dataclasses import asdict

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response

from apps.allocation.api.serializers import ExplanationSerializer
from apps.allocation.explaining import explained
from apps.tasks.api.asked import user_of
from apps.tasks.api.serializers import ErrorSerializer
from apps.tasks.selectors.seen import task_seen

_ERRORS = {"4XX": ErrorSerializer}
_DOMINANT = ("code", "sentence", "help")


@extend_schema(
    operation_id="tasks_explain",
    tags=["tasks"],
    responses={200: ExplanationSerializer, **_ERRORS},
)
@api_view()
def task_explain(request: Request, pk: str) -> Response:
    """Why a task waits, as the last pass said it, in sentences; what it waited for before."""
    user = user_of(request)
    found = explained(user, task_seen(user, pk))
    first = found.reasons[0] if found.reasons else None
    return Response(
        {
            "state": found.state,
            **{name: getattr(first, name) if first else "" for name in _DOMINANT},
            "reasons": [asdict(reason) for reason in found.reasons],
            "place": found.place,
            "at": found.at,
            "history": [{"at": past.at, **asdict(past.reason)} for past in found.history],
        }
    )
