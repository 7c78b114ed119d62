"""REST of the user's own credentials, and serializers for those of others."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.accounts.api.permissions import person
from apps.accounts.models import Credential, Scope
from apps.accounts.selectors import credentials_of, is_admin
from apps.accounts.services.access import CredentialAccess
from apps.accounts.services.credentials import (
    credential_change,
    credential_create,
    credential_revoke,
)
from apps.core.api import KeysetPagination
from apps.core.errors import NotAllowed
from apps.core.serializers import StrictSerializer


class CredentialSerializer(serializers.ModelSerializer[Credential]):
    class Meta:
        model = Credential
        fields = [
            "id",
            "key",
            "label",
            "scope",
            "created_at",
            "expires_at",
            "last_used_at",
            "revoked_at",
        ]
        read_only_fields = fields


class CredentialSecretSerializer(CredentialSerializer):
    """The secret is shown this once."""

    secret = serializers.CharField(read_only=True)

    class Meta(CredentialSerializer.Meta):
        fields = [*CredentialSerializer.Meta.fields, "secret"]


class CredentialLabelSerializer(StrictSerializer):
    label = serializers.CharField(max_length=100, allow_blank=True)  # type: ignore[assignment]  # the metaclass removes it


class CredentialCreateSerializer(StrictSerializer):
    label = serializers.CharField(  # type: ignore[assignment]  # the metaclass removes it
        max_length=100, allow_blank=True, default=""
    )
    scope = serializers.ChoiceField(
        Scope.choices,
        default=Scope.ADMINISTER,
        help_text="`read`: safe methods; `enqueue`: also all with your own tasks; `administer`: "
        "all that its owner may.",
    )
    expires_at = serializers.DateTimeField(allow_null=True, default=None)

    def validate_expires_at(self, value: Any) -> Any:
        if value is not None and value <= timezone.now():
            raise serializers.ValidationError("lies in the past")
        return value


def request_credential(request: Request) -> Credential | None:
    """The credential of a request for a new one; None where a session asks.

    Raises:
        NotAllowed: with a token, which the new one would outlive.
    """
    access = request.auth
    if not isinstance(access, CredentialAccess):
        return None
    if access.until is not None:
        raise NotAllowed("A token makes no credentials: send key and secret, as HTTP Basic.")
    return Credential.objects.get(pk=access.credential_id)


def secret_response(credential: Credential, secret: str) -> Response:
    """A new credential with its secret; caches must not keep the response."""
    facts = {**CredentialSerializer(credential).data, "secret": secret}
    return Response(facts, status=201, headers={"Cache-Control": "no-store"})


class CredentialViewSet(ListModelMixin, RetrieveModelMixin, GenericViewSet[Credential]):
    """Keys for programs; a key and its secret are sent as HTTP Basic."""

    serializer_class = CredentialSerializer
    pagination_class = KeysetPagination
    queryset = Credential.objects.none()
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Credential]:
        return credentials_of(self.request.user)

    @extend_schema(request=CredentialCreateSerializer, responses={201: CredentialSecretSerializer})
    def create(self, request: Request) -> Response:
        """Create a credential; its secret is in this response and nowhere else."""
        body = CredentialCreateSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        made_with = request_credential(request)
        return secret_response(
            *credential_create(user=person(request), made_with=made_with, **body.validated_data)
        )

    @extend_schema(request=CredentialLabelSerializer, responses=CredentialSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Change its label."""
        body = CredentialLabelSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        changed = credential_change(
            credential=self.get_object(), actor=person(request), **body.validated_data
        )
        return Response(CredentialSerializer(changed).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Revoke it: it is refused from the next request on, and its sockets close."""
        user = person(request)
        credential_revoke(credential=self.get_object(), actor=user, is_admin=is_admin(user))
        return Response(status=204)
