"""REST of identity providers, for administrators."""

from typing import Any

from django.contrib.auth.models import Group
from django.db import models
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.accounts.api.permissions import IsAdmin, person
from apps.accounts.identity.presets import PRESETS
from apps.accounts.models import IdentityProvider, Pkce, Protocol
from apps.accounts.selectors import identity_providers
from apps.accounts.services.identity import (
    FIELDS,
    MOST_METADATA,
    provider_change,
    provider_create,
    provider_remove,
)
from apps.core.api import KeysetPagination
from apps.core.keyring import HIDDEN
from apps.core.serializers import StrictSerializer

_ALL = tuple(dict.fromkeys((*FIELDS[Protocol.OIDC], *FIELDS[Protocol.SAML])))


class PairSerializer(serializers.Serializer[Any]):
    """Members of `external` at the provider are in `group` here."""

    external = serializers.CharField(max_length=255)
    group = serializers.SlugRelatedField[Group](
        slug_field="name", queryset=Group.objects.order_by("name")
    )


class _Mapping(serializers.Serializer[Any]):
    external = serializers.CharField(source="external_name")
    group = serializers.CharField(source="group.name")


class IdentityProviderSerializer(serializers.ModelSerializer[IdentityProvider]):
    """A provider, never with its secrets. Fields of the other protocol keep their defaults."""

    id = serializers.CharField(source="slug", read_only=True)
    client_secret = serializers.SerializerMethodField()
    mapping = _Mapping(many=True, read_only=True)

    class Meta:
        model = IdentityProvider
        fields = [
            *("id", "protocol", "preset", "created_at", "updated_at", "client_secret"),
            *("certificate", "mapping", *_ALL),
        ]
        read_only_fields = [name for name in fields if name not in {"client_secret", "mapping"}]

    @extend_schema_field({"type": "string", "description": "******** where there is one."})
    def get_client_secret(self, row: IdentityProvider) -> str:
        return HIDDEN if row.client_secret_sealed else ""


def _changes() -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    """A field for each column, none of them required: fields that are left out stay."""
    made: dict[str, serializers.Field[Any, Any, Any, Any]] = {}
    for name in _ALL:
        column = IdentityProvider._meta.get_field(name)
        about: dict[str, Any] = {
            "required": False,
            "help_text": str(getattr(column, "help_text", "")),
        }
        if name == "pkce":
            made[name] = serializers.ChoiceField(choices=Pkce.choices, **about)
        elif isinstance(column, models.BooleanField):
            made[name] = serializers.BooleanField(**about)
        else:
            most = MOST_METADATA if name == "metadata" else getattr(column, "max_length", None)
            made[name] = serializers.CharField(max_length=most, allow_blank=name != "name", **about)
    return made


class IdentityProviderChangeSerializer(StrictSerializer):
    """What an administrator may set."""

    client_secret = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=1000,
        help_text="Kept sealed; ******** keeps the one there is.",
    )
    mapping = PairSerializer(many=True, required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {**super().get_fields(), **_changes()}


class IdentityProviderCreateSerializer(IdentityProviderChangeSerializer):
    """A new provider begins with the defaults of its preset."""

    preset = serializers.ChoiceField(choices=list(PRESETS))


class IdentityProviderViewSet(ListModelMixin, RetrieveModelMixin, GenericViewSet[IdentityProvider]):
    """Identity providers, for administrators."""

    serializer_class = IdentityProviderSerializer
    pagination_class = KeysetPagination
    permission_classes = [IsAuthenticated, IsAdmin]
    queryset = IdentityProvider.objects.none()
    lookup_field = "slug"
    lookup_url_kwarg = "pk"
    lookup_value_regex = "[a-z0-9-]{1,40}"
    filterset_fields = ["is_active", "protocol", "preset"]

    def get_queryset(self) -> QuerySet[IdentityProvider]:
        return identity_providers().prefetch_related("mapping__group")

    @extend_schema(
        request=IdentityProviderCreateSerializer, responses={201: IdentityProviderSerializer}
    )
    def create(self, request: Request) -> Response:
        """Create a provider; people can log in with it at once, unless it is inactive."""
        values = _values(IdentityProviderCreateSerializer(data=request.data))
        preset, mapping = values.pop("preset"), values.pop("mapping", None)
        row = provider_create(
            actor=person(request), preset=preset, values=values, mapping=mapping or []
        )
        return Response(self.get_serializer(row).data, status=201)

    @extend_schema(request=IdentityProviderChangeSerializer, responses=IdentityProviderSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Change the fields that are sent.

        With another issuer, metadata of another provider or another claim of the id, people are
        recognised by their e-mail addresses again.
        """
        row = self.get_object()
        values = _values(IdentityProviderChangeSerializer(data=request.data))
        mapping = values.pop("mapping", None)
        provider_change(actor=person(request), provider=row, values=values, mapping=mapping)
        return Response(self.get_serializer(self.get_object()).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Remove it; people and their groups stay."""
        provider_remove(actor=person(request), provider=self.get_object())
        return Response(status=204)


def _values(body: StrictSerializer) -> dict[str, Any]:
    body.is_valid(raise_exception=True)
    values: dict[str, Any] = dict(body.validated_data)
    if "mapping" in values:
        values["mapping"] = [(pair["external"], pair["group"]) for pair in values["mapping"]]
    return values
