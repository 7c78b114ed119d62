"""REST of the user's own notices, and of the rules that they follow from."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from apps.accounts.api.permissions import person
from apps.core.api import KeysetPagination
from apps.core.errors import BadInput
from apps.notices.api.serializers import (
    NoticeQuerySerializer,
    NoticeRuleChangeSerializer,
    NoticeRuleCreateSerializer,
    NoticeRuleSerializer,
    NoticeSerializer,
    NoticeSettingsChangeSerializer,
    NoticeSettingsSerializer,
    NoticesReadSerializer,
    UnreadSerializer,
)
from apps.notices.models import Notice, NoticeRule
from apps.notices.selectors import (
    notices_visible_to,
    policies_to_notice,
    queues_to_notice,
    rules_visible_to,
    settings_of,
    task_notices,
    unread_count,
)
from apps.notices.services.read_marks import notices_mark_read
from apps.notices.services.rules import notice_rule_change, notice_rule_create, notice_rule_remove
from apps.notices.services.settings import notice_settings_change
from apps.policies.selectors import by_name_or_id


class NoticeViewSet(GenericViewSet[Notice]):
    """What happened to tasks, as the user's rules tell; the newest first."""

    serializer_class = NoticeSerializer
    pagination_class = KeysetPagination
    queryset = Notice.objects.none()

    @extend_schema(parameters=[NoticeQuerySerializer], responses=NoticeSerializer(many=True))
    def list(self, request: Request) -> Response:
        """Those of tasks that the user sees now."""
        query = NoticeQuerySerializer(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        user = person(request)
        notices = notices_visible_to(user)
        if query.validated_data["unread"]:
            notices = notices.filter(read_at__isnull=True)
        found = task_notices(user, self.paginate_queryset(notices) or [])
        context = {"known": {one.notice.pk: one for one in found}}
        rows = NoticeSerializer([one.notice for one in found], many=True, context=context)
        return self.get_paginated_response(rows.data)

    @extend_schema(request=NoticesReadSerializer, responses=UnreadSerializer)
    @action(detail=False, methods=["post"])
    def read(self, request: Request) -> Response:
        """Mark some or all as read."""
        body = NoticesReadSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        user = person(request)
        notices_mark_read(user=user, **body.validated_data)
        return Response({"unread": unread_count(user)})


class NoticeRuleViewSet(ListModelMixin, RetrieveModelMixin, GenericViewSet[NoticeRule]):
    """What the user wants to be notified of."""

    serializer_class = NoticeRuleSerializer
    pagination_class = KeysetPagination
    queryset = NoticeRule.objects.none()
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[NoticeRule]:
        return rules_visible_to(self.request.user)

    @extend_schema(request=NoticeRuleCreateSerializer, responses={201: NoticeRuleSerializer})
    def create(self, request: Request) -> Response:
        """Add a rule; it notifies of what happens from now on."""
        body = NoticeRuleCreateSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        user, given = person(request), body.validated_data
        rows: dict[str, QuerySet[Any]] = {
            "queue": queues_to_notice(user),
            "policy": policies_to_notice(user),
        }
        rule = notice_rule_create(
            user=user, **given | {name: _named(name, rows[name], given[name]) for name in rows}
        )
        return Response(NoticeRuleSerializer(rule).data, status=201)

    @extend_schema(request=NoticeRuleChangeSerializer, responses=NoticeRuleSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Change its kinds or its time."""
        body = NoticeRuleChangeSerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        rule = notice_rule_change(
            user=person(request), rule=self.get_object(), changes=body.validated_data
        )
        return Response(NoticeRuleSerializer(rule).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Remove it; its notices stay."""
        notice_rule_remove(user=person(request), rule=self.get_object())
        return Response(status=204)


class NoticeSettingsView(APIView):
    """When the user gets notices by e-mail."""

    @extend_schema(responses=NoticeSettingsSerializer)
    def get(self, request: Request) -> Response:
        """The settings, and why the last mail was not sent."""
        return Response(NoticeSettingsSerializer(settings_of(person(request))).data)

    @extend_schema(request=NoticeSettingsChangeSerializer, responses=NoticeSettingsSerializer)
    def patch(self, request: Request) -> Response:
        """Change some of them."""
        body = NoticeSettingsChangeSerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        row = notice_settings_change(user=person(request), changes=body.validated_data)
        return Response(NoticeSettingsSerializer(row).data)


def _named(name: str, rows: QuerySet[Any], given: str | None) -> Any:
    """The queue or policy of this name or id that the user manages; None where none is given."""
    if given is None:
        return None
    row = by_name_or_id(rows, given)
    if row is None:
        words = f"choose a {name} that you manage"
        raise BadInput(f"{name}: {words}.", fields={name: words})
    return row
