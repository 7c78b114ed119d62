"""REST of the audit log, for administrators."""

from datetime import UTC, datetime
from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django_filters.rest_framework import CharFilter, FilterSet, IsoDateTimeFilter
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api.permissions import IsAdmin, person
from apps.core.api import KeysetPagination
from apps.core.errors import BadInput
from apps.events.api.serializers import AuditChainSerializer, AuditEntrySerializer
from apps.events.exports import FORMATS, audit_download
from apps.events.models import AuditEntry
from apps.events.selectors import (
    AuditFilter,
    audit_chain,
    audit_filtered,
    audit_unsealed,
    audit_visible_to,
)
from apps.events.services import audit_record

# A moment near the ends of the calendar has no day in UTC.
YEARS = (
    MinValueValidator(datetime(1970, 1, 1, tzinfo=UTC), "must be in 1970 or later"),
    MaxValueValidator(datetime(9998, 12, 31, tzinfo=UTC), "must be before 9999"),
)


class _AuditFilterSet(FilterSet):  # type: ignore[misc]  # comes without types
    """All filters apply together; text is looked for in names, reasons, addresses and values."""

    who = CharFilter(
        max_length=300, label="User name of the actor, or of the account that acted for them."
    )
    verb = CharFilter(max_length=100, label="`policy.changed`, or `policy.` for all of a kind.")
    target = CharFilter(max_length=400, label="`policy`, `policy 7` or `policy Dev`.")
    since = IsoDateTimeFilter(label="From this moment on.", validators=YEARS)
    until = IsoDateTimeFilter(label="Before this moment.", validators=YEARS)
    text = CharFilter(max_length=200, label="Part of a name, reason, address or value.")

    def filter_queryset(self, queryset: QuerySet[AuditEntry]) -> QuerySet[AuditEntry]:
        return audit_filtered(queryset, AuditFilter(**_is_set(self.form.cleaned_data)))


def _is_set(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "")}


class AuditViewSet(ReadOnlyModelViewSet[AuditEntry]):
    """The audit log: who did what, and from where. Entries are added and never changed."""

    permission_classes = (IsAdmin,)
    serializer_class = AuditEntrySerializer
    pagination_class = KeysetPagination
    filterset_class = _AuditFilterSet
    queryset = AuditEntry.objects.none()
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[AuditEntry]:
        return audit_visible_to(self.request.user)

    @extend_schema(
        parameters=[OpenApiParameter("as", enum=sorted(FORMATS), description="Default: csv.")],
        responses={
            (200, "text/csv"): OpenApiTypes.STR,
            (200, "application/jsonl"): OpenApiTypes.STR,
        },
    )
    @action(detail=False, pagination_class=None)
    def export(self, request: Request) -> StreamingHttpResponse:
        """All entries that fit the filters, oldest first, as a file."""
        wanted = request.query_params.get("as", "csv")
        if wanted not in FORMATS:
            problem = f"is none of {', '.join(sorted(FORMATS))}"
            raise BadInput(f"as {problem}.", fields={"as": problem})
        entries = self.filter_queryset(self.get_queryset())
        audit_record(
            "audit.exported",
            actor=person(request),
            object_type="audit",
            object_id="",
            data={"name": "Audit log", "filters": request.query_params.dict()},
        )
        return audit_download(entries, wanted)

    @extend_schema(responses=AuditChainSerializer)
    @action(detail=False, pagination_class=None, filterset_class=None)
    def chain(self, request: Request) -> Response:  # noqa: ARG002  # the route's
        """The end of the chain. Keep the head elsewhere to prove later that nothing was changed."""
        chain = audit_chain()
        facts = {"length": chain.length, "head": chain.head, "unsealed": audit_unsealed()}
        return Response(AuditChainSerializer(facts).data)
