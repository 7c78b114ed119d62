"""REST of passes, for administrators."""

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api.permissions import IsAdmin
from apps.allocation.api.serializers import PassSerializer
from apps.allocation.models import PassRecord
from apps.allocation.selectors import pass_snapshot, passes_visible_to


class PassViewSet(ReadOnlyModelViewSet[PassRecord]):
    """Passes that decided something, the last one first; kept 30 days."""

    permission_classes = (IsAdmin,)
    serializer_class = PassSerializer
    queryset = PassRecord.objects.none()
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[PassRecord]:
        return passes_visible_to(self.request.user)

    @extend_schema(responses={(200, "application/json"): OpenApiTypes.OBJECT})
    @action(detail=True, methods=["get"])
    def snapshot(self, request: Request, pk: str) -> HttpResponse:  # noqa: ARG002  # the route's
        """What the pass looked at, as a scenario file; the last 200 passes keep theirs."""
        found = self.get_object()
        response = HttpResponse(pass_snapshot(found.pk), content_type="application/json")
        response["Content-Disposition"] = f'attachment; filename="pass-{found.pk}.json"'
        return response
