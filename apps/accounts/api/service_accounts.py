"""REST of service accounts, for administrators."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.accounts.api.credentials import (
    CredentialCreateSerializer,
    CredentialSecretSerializer,
    CredentialSerializer,
    request_credential,
    secret_response,
)
from apps.accounts.api.permissions import IsAdmin, person
from apps.accounts.models import Credential, Scope, User
from apps.accounts.selectors import credentials_of, service_accounts_listed
from apps.accounts.services.credentials import credential_create, credential_revoke
from apps.accounts.services.service_accounts import (
    service_account_change,
    service_account_create,
    service_account_remove,
)
from apps.core.api import KeysetPagination
from apps.core.serializers import NameSerializer, StrictSerializer

_ACTS = "May act for the owner of a task that it sees, with the header X-RPM-Act-For."
_FILTERS = [
    OpenApiParameter("q", description="Part of the name."),
    OpenApiParameter("group", description="Name of a group."),
]


class ServiceAccountSerializer(serializers.Serializer[User]):
    id = serializers.IntegerField()
    name = serializers.CharField(source="username")
    groups = NameSerializer(many=True)
    can_act_for_owners = serializers.BooleanField(help_text=_ACTS)
    credentials = serializers.IntegerField(
        source="credentials_live", help_text="How many of them are valid."
    )
    added_at = serializers.DateTimeField(source="date_joined")
    last_active_at = serializers.DateTimeField(source="credentials_used_at", allow_null=True)


class NewServiceAccountSerializer(ServiceAccountSerializer):
    """With its first credential, whose secret is shown this once."""

    credential = CredentialSecretSerializer()


class ServiceAccountChangeSerializer(StrictSerializer):
    name = serializers.CharField(max_length=150)
    groups = serializers.ListField(
        child=serializers.CharField(max_length=150), max_length=500, help_text="Names of groups."
    )
    can_act_for_owners = serializers.BooleanField(help_text=_ACTS)


class ServiceAccountCreateSerializer(ServiceAccountChangeSerializer):
    groups = serializers.ListField(
        child=serializers.CharField(max_length=150), max_length=500, default=list
    )
    can_act_for_owners = serializers.BooleanField(default=False, help_text=_ACTS)
    scope = serializers.ChoiceField(
        Scope.choices, default=Scope.ENQUEUE, help_text="Of its first credential."
    )
    expires_at = serializers.DateTimeField(
        allow_null=True, default=None, help_text="Of its first credential."
    )

    def validate_expires_at(self, value: Any) -> Any:
        return CredentialCreateSerializer().validate_expires_at(value)


@extend_schema_view(list=extend_schema(parameters=_FILTERS))
class ServiceAccountViewSet(ListModelMixin, RetrieveModelMixin, GenericViewSet[User]):
    """Accounts of programs: they have credentials and groups, and no log-in."""

    permission_classes = (IsAdmin,)
    serializer_class = ServiceAccountSerializer
    pagination_class = KeysetPagination
    filter_backends = []
    queryset = User.objects.none()
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[User]:
        wanted = self.request.query_params
        return service_accounts_listed(
            self.request.user, q=wanted.get("q", ""), group=wanted.get("group", "")
        )

    @extend_schema(
        request=ServiceAccountCreateSerializer, responses={201: NewServiceAccountSerializer}
    )
    def create(self, request: Request) -> Response:
        """Create an account; the secret of its first credential is in this response only."""
        body = ServiceAccountCreateSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        made = service_account_create(
            actor=person(request), made_with=request_credential(request), **body.validated_data
        )
        account = self.get_queryset().get(pk=made.account.pk)
        first = {**CredentialSerializer(made.credential).data, "secret": made.secret}
        payload = {**ServiceAccountSerializer(account).data, "credential": first}
        return Response(payload, status=201, headers={"Cache-Control": "no-store"})

    @extend_schema(request=ServiceAccountChangeSerializer, responses=ServiceAccountSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Change its name, its groups, or whether it may act for others."""
        body = ServiceAccountChangeSerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        account = self.get_object()
        service_account_change(actor=person(request), account=account, **body.validated_data)
        return Response(ServiceAccountSerializer(self.get_queryset().get(pk=account.pk)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Refuse its credentials and free its name; its tasks stay."""
        service_account_remove(actor=person(request), account=self.get_object())
        return Response(status=204)

    @extend_schema(responses=CredentialSerializer(many=True), methods=["GET"])
    @extend_schema(
        request=CredentialCreateSerializer,
        responses={201: CredentialSecretSerializer},
        methods=["POST"],
    )
    @action(detail=True, methods=["get", "post"])
    def credentials(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Its credentials, revoked ones too; a new one shows its secret once."""
        account = self.get_object()
        if request.method == "POST":
            body = CredentialCreateSerializer(data=request.data)
            body.is_valid(raise_exception=True)
            made_with = request_credential(request)
            return secret_response(
                *credential_create(
                    user=account,
                    actor=person(request),
                    made_with=made_with,
                    **body.validated_data,
                )
            )
        known: Any = credentials_of(account)
        page: Any = self.paginate_queryset(known) or []
        return self.get_paginated_response(CredentialSerializer(page, many=True).data)

    @extend_schema(
        responses={204: None}, parameters=[OpenApiParameter("credential_pk", int, "path")]
    )
    @action(detail=True, methods=["delete"], url_path=r"credentials/(?P<credential_pk>[0-9]{1,18})")
    def revoke(self, request: Request, pk: str, credential_pk: str) -> Response:  # noqa: ARG002  # the route's
        """Refuse one of its credentials from the next request on."""
        known = Credential.objects.filter(user=self.get_object())
        credential = get_object_or_404(known, pk=credential_pk)
        credential_revoke(credential=credential, actor=person(request), is_admin=True)
        return Response(status=204)
