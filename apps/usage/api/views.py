"""REST of usage over time."""

from datetime import timedelta
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.access.selectors import pools_visible_to
from apps.accounts.api.permissions import HasScope, person
from apps.core.errors import BadInput
from apps.policies.selectors import by_name_or_id
from apps.usage.api.serializers import (
    IdleAttemptSerializer,
    IdleQuerySerializer,
    UsageQuerySerializer,
    UsageSerializer,
    report_facts,
)
from apps.usage.exports import csv_response
from apps.usage.selectors.idle_attempts import idle_attempts
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.report import UsagePeriod, UsageReport, usage_report


class UsageView(APIView):
    """What the policies that the user sees held over time, compared with the time before."""

    permission_classes = (HasScope,)

    @extend_schema(parameters=[UsageQuerySerializer], responses=UsageSerializer)
    def get(self, request: Request) -> Response:
        """One line per policy, pool, model, tier, queue or owner. The present hour is included."""
        return Response(UsageSerializer(report_facts(_report(request))).data)


class UsageCsvView(APIView):
    """The same report as a file."""

    permission_classes = (HasScope,)

    @extend_schema(
        parameters=[UsageQuerySerializer], responses={(200, "text/csv"): OpenApiTypes.STR}
    )
    def get(self, request: Request) -> HttpResponse:
        """The lines of the report for spreadsheets."""
        return csv_response(_report(request))


class IdleView(APIView):
    """Tasks that hold GPUs without using them, of the queues that the user sees."""

    permission_classes = (HasScope,)

    @extend_schema(
        parameters=[IdleQuerySerializer], responses={200: IdleAttemptSerializer(many=True)}
    )
    def get(self, request: Request) -> Response:
        """At most 200, the most idle GPU time first; GPUs that do not say their use are missing."""
        query = IdleQuerySerializer(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        after = timedelta(minutes=query.validated_data["minutes"])
        found = idle_attempts(person(request), after=after)
        return Response(IdleAttemptSerializer(found, many=True).data)


def _report(request: Request) -> UsageReport:
    query = UsageQuerySerializer(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    given: dict[str, Any] = query.validated_data
    user = person(request)
    pool = by_name_or_id(pools_visible_to(user), given["pool"]) if "pool" in given else None
    if "pool" in given and pool is None:
        problem = f"there is no pool {given['pool']!r}"
        raise BadInput(f"pool: {problem}.", fields={"pool": problem})
    by = UsageGroup(given["by"])
    period = UsagePeriod.parse(given.get("since"), given.get("until"))
    return usage_report(user, period, by, pool=pool.pk if pool else None)
