"""REST of usage over time."""

from datetime import timedelta
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.access.selectors import policies_visible_to, pools_visible_to, queues_visible_to
from apps.accounts.api.permissions import HasScope, IsAdmin, person
from apps.accounts.models import User
from apps.core.errors import BadInput
from apps.policies.models import Pool
from apps.policies.selectors import by_name_or_id
from apps.usage.api.serializers import (
    IdleAttemptSerializer,
    IdleQuerySerializer,
    RateCreateSerializer,
    RateSerializer,
    UsageQuerySerializer,
    UsageSerializer,
    UseThresholdSerializer,
    report_facts,
)
from apps.usage.exports import csv_response
from apps.usage.models import Rate
from apps.usage.selectors.idle_attempts import IdleFilter, idle_attempts
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.periods import UsagePeriod
from apps.usage.selectors.policy_use import use_threshold
from apps.usage.selectors.rates import first_unbooked_hour
from apps.usage.selectors.report import UsageReport, usage_report
from apps.usage.services.rates import rate_create, rate_remove
from apps.usage.services.thresholds import use_threshold_set

Row = TypeVar("Row", bound=Model)


class UsageView(APIView):
    """What the policies that the user sees held over time, compared with the time before."""

    permission_classes = (HasScope,)

    @extend_schema(parameters=[UsageQuerySerializer], responses=UsageSerializer)
    def get(self, request: Request) -> Response:
        """One line per policy, pool, model, tier, profile, queue or owner, up to now."""
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
        given, user = query.validated_data, person(request)
        wanted = IdleFilter(
            policy=_id("policy", policies_visible_to(user), given.get("policy")),
            queue=_id("queue", queues_visible_to(user), given.get("queue")),
            owner=given.get("owner", ""),
        )
        found = idle_attempts(user, wanted, after=timedelta(minutes=given["minutes"]))
        return Response(IdleAttemptSerializer(found, many=True).data)


class UseThresholdView(APIView):
    """Which policies are marked because they use little of their GPUs; for administrators."""

    permission_classes = (IsAdmin,)

    @extend_schema(responses={200: UseThresholdSerializer})
    def get(self, request: Request) -> Response:  # noqa: ARG002  # the route's
        """The threshold now."""
        return Response({"gpu_percent": use_threshold()})

    @extend_schema(request=UseThresholdSerializer, responses={200: UseThresholdSerializer})
    def put(self, request: Request) -> Response:
        """Set it, or remove it with null."""
        body = UseThresholdSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        use_threshold_set(actor=person(request), **body.validated_data)
        return Response({"gpu_percent": use_threshold()})


class RatesView(APIView):
    """What resources cost, the latest first; for administrators."""

    permission_classes = (IsAdmin,)

    @extend_schema(responses={200: RateSerializer(many=True)})
    def get(self, request: Request) -> Response:  # noqa: ARG002  # the route's
        """All of them."""
        rates = Rate.objects.select_related("pool")
        context = {"unbooked": first_unbooked_hour()}
        return Response(RateSerializer(rates, many=True, context=context).data)

    @extend_schema(request=RateCreateSerializer, responses={201: RateSerializer})
    def post(self, request: Request) -> Response:
        """Let something cost this from a full hour on."""
        body = RateCreateSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given: dict[str, Any] = body.validated_data
        pool = _pool(person(request), given.pop("pool"))
        rate = rate_create(actor=person(request), pool=pool, **given)
        context = {"unbooked": first_unbooked_hour()}
        return Response(RateSerializer(rate, context=context).data, status=201)


class RateView(APIView):
    """One rate; for administrators."""

    permission_classes = (IsAdmin,)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Remove a rate that nothing was summed up by."""
        rate_remove(actor=person(request), rate=get_object_or_404(Rate, pk=pk))
        return Response(status=204)


def _pool(user: User, given: str) -> Pool | None:
    return _named("pool", pools_visible_to(user), given) if given else None


def _id(noun: str, rows: QuerySet[Row], given: str | None) -> int | None:
    return _named(noun, rows, given).pk if given else None


def _named(noun: str, rows: QuerySet[Row], given: str) -> Row:
    found = by_name_or_id(rows, given)
    if found is None:
        problem = f"there is no {noun} {given!r}"
        raise BadInput(f"{noun}: {problem}.", fields={noun: problem})
    return found


def _report(request: Request) -> UsageReport:
    query = UsageQuerySerializer(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    given: dict[str, Any] = query.validated_data
    user = person(request)
    pool = _pool(user, given.get("pool", ""))
    by = UsageGroup(given["by"])
    period = UsagePeriod.parse(given.get("since"), given.get("until"))
    return usage_report(user, period, by, pool=pool.pk if pool else None)
