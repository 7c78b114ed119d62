"""`/api/v1/vaults/`."""

from typing import Any

from django.contrib.auth.models import Group
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.pagination import Cursor
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.viewsets import GenericViewSet

from apps.access.api.vault_serializers import (
    VaultChangeSerializer,
    VaultCheckedSerializer,
    VaultCheckSerializer,
    VaultCreateSerializer,
    VaultEventSerializer,
    VaultMoveSerializer,
    VaultRestoreSerializer,
    VaultSerializer,
    VaultTextSerializer,
    VaultVersionSerializer,
    VaultVersionTextSerializer,
)
from apps.access.isolation import without_other_tenants
from apps.access.services.vaults import (
    vault_change,
    vault_move,
    vault_remove,
    vault_restore,
    vault_switch,
)
from apps.access.vaults import (
    FILTERS,
    vault_history,
    vault_permissions,
    vault_versions,
    vaults_matching_filters,
    vaults_with_permissions,
    visible_vault,
    visible_vault_version,
)
from apps.accounts.api.permissions import person
from apps.accounts.models import User
from apps.accounts.selectors import groups_visible_to, manages_people
from apps.core.api import KeysetPagination, if_match
from apps.core.errors import BadInput, NotAllowed, NotFound
from apps.core.keyring import CannotUnseal, SealContext, seal, unseal
from apps.vaults.models import Vault
from apps.vaults.selectors.effective import vault_text
from apps.vaults.services.text_check import vault_text_check
from apps.vaults.services.vaults import vault_create

UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_ETAG = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="The ETag.")
_FILTERS = [
    OpenApiParameter("kind", enum=["personal", "group"]),
    OpenApiParameter("group", description="Name of a group."),
    OpenApiParameter("owner", description="User name."),
    OpenApiParameter("is_active", enum=["true", "false"]),
    OpenApiParameter("q", description="Part of the name."),
]
_CURSOR = SealContext("vaults.list.cursor")


class _ByPosition(KeysetPagination):
    """Cursors hold the position sealed, because it counts the vaults of all tenants."""

    ordering = ("position", "id")  # type: ignore[assignment]  # DRF takes tuples too

    def encode_cursor(self, cursor: Cursor) -> str:
        if cursor.position is not None:
            cursor = _at(cursor, seal(str(cursor.position), context=_CURSOR))
        return super().encode_cursor(cursor)

    def decode_cursor(self, request: Request) -> Cursor | None:
        cursor = super().decode_cursor(request)
        if cursor is None or cursor.position is None:
            return cursor
        try:
            return _at(cursor, unseal(str(cursor.position), context=_CURSOR))
        except CannotUnseal as error:
            # `paginate_queryset` answers this as a forged cursor.
            raise ValueError(cursor.position) from error


def _at(cursor: Cursor, position: str) -> Cursor:
    return cursor._replace(position=position)  # type: ignore[arg-type]  # a text, not a number


class _ByVersion(KeysetPagination):
    ordering = ("-version", "-id")  # type: ignore[assignment]  # DRF takes tuples too


class VaultViewSet(GenericViewSet[Vault]):
    """The user's own vaults, those of the user's groups, and for administrators all."""

    serializer_class = VaultSerializer
    pagination_class = _ByPosition
    filter_backends = []
    queryset = Vault.objects.none()
    lookup_value_regex = UUID

    def get_queryset(self) -> QuerySet[Vault]:
        return vaults_with_permissions(person(self.request))

    @extend_schema(parameters=_FILTERS, responses=VaultSerializer(many=True))
    def list(self, request: Request) -> Response:
        """Vaults without their texts, the lowest first."""
        wanted = _wanted(request)
        user = person(request)
        page = self.paginate_queryset(vaults_matching_filters(user, wanted)) or []
        rows = without_other_tenants(user, page, "updated_by")
        return self.get_paginated_response(self.get_serializer(rows, many=True).data)

    @extend_schema(request=VaultCreateSerializer, responses={201: VaultTextSerializer})
    def create(self, request: Request) -> Response:
        """A new vault; it is off unless `is_active` says otherwise."""
        body = _checked(VaultCreateSerializer, request)
        group = _group(person(request), body.pop("group"))
        vault = vault_create(actor=person(request), group=group, **body)
        return self._response(request, vault, status=201)

    @extend_schema(responses=VaultTextSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        """A vault, with its text for those who may read it; its ETag is the version."""
        return self._response(request, visible_vault(person(request), pk))

    @extend_schema(request=VaultChangeSerializer, parameters=[_ETAG], responses=VaultTextSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a vault or switch it on or off. All but switching needs If-Match."""
        actor = person(request)
        vault = visible_vault(actor, pk)
        changes = _checked(VaultChangeSerializer, request)
        is_active = changes.pop("is_active", None)
        if changes:
            version = if_match(request, is_required=True)
            vault_change(actor=actor, vault=vault, changes=changes, version=version)
        if is_active is not None:
            vault_switch(actor=actor, vault=vault, is_active=is_active)
        return self._response(request, vault)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Remove a vault; tasks that started with it keep their values."""
        actor = person(request)
        vault_remove(actor=actor, vault=visible_vault(actor, pk))
        return Response(status=204)

    @extend_schema(request=VaultMoveSerializer, responses=VaultTextSerializer)
    @action(detail=True, methods=["post"])
    def move(self, request: Request, pk: str) -> Response:
        """Move a vault among those of its owner, or of all groups."""
        actor = person(request)
        body = _checked(VaultMoveSerializer, request)
        vault = visible_vault(actor, pk)
        vault_move(actor=actor, vault=vault, position=body["position"])
        return self._response(request, vault)

    @extend_schema(responses=VaultEventSerializer(many=True))
    @action(detail=True, pagination_class=KeysetPagination)
    def history(self, request: Request, pk: str) -> Response:
        """The changes of a vault and their actors, the latest first."""
        actor = person(request)
        vault = visible_vault(actor, pk)
        if (
            not vault_permissions(actor, vault).switch_off
            and not vault_permissions(actor, vault).read
        ):
            raise NotFound("There is no such thing, or you may not see it.")
        events: Any = vault_history(vault)
        page: Any = self.paginate_queryset(events) or []
        rows = without_other_tenants(actor, page, "actor")
        return self.get_paginated_response(VaultEventSerializer(rows, many=True).data)

    @extend_schema(responses=VaultVersionSerializer(many=True))
    @action(detail=True, pagination_class=_ByVersion)
    def versions(self, request: Request, pk: str) -> Response:
        """The kept versions, the latest first, for users who may read the text."""
        actor = person(request)
        rows: Any = vault_versions(actor, _readable(actor, pk))
        page: Any = self.paginate_queryset(rows) or []
        kept = without_other_tenants(actor, page, "by")
        return self.get_paginated_response(VaultVersionSerializer(kept, many=True).data)

    @extend_schema(responses=VaultVersionTextSerializer)
    @action(detail=True, url_path="versions/(?P<number>[1-9][0-9]{0,8})")
    def version(self, request: Request, pk: str, number: str) -> Response:
        """One version, with its text."""
        actor = person(request)
        row = visible_vault_version(actor, visible_vault(actor, pk), int(number))
        headers = {"Cache-Control": "no-store"}
        return Response(VaultVersionTextSerializer(row).data, headers=headers)

    @extend_schema(
        request=VaultRestoreSerializer, parameters=[_ETAG], responses=VaultTextSerializer
    )
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        """Restore an earlier version as a new one; needs If-Match."""
        actor = person(request)
        vault = visible_vault(actor, pk)
        body = _checked(VaultRestoreSerializer, request)
        version = if_match(request, is_required=True)
        vault_restore(actor=actor, vault=vault, to=body["to"], version=version)
        return self._response(request, vault)

    @extend_schema(request=VaultCheckSerializer, responses=VaultCheckedSerializer)
    @action(detail=False, methods=["post"])
    def validate(self, request: Request) -> Response:
        """Check a text without saving it, and report the place of an error."""
        body = _checked(VaultCheckSerializer, request)
        found = vault_text_check(text=body["text"], format=body["format"])
        return Response(VaultCheckedSerializer(found).data)

    def _response(self, request: Request, vault: Vault, *, status: int = 200) -> Response:
        user = person(request)
        (row,) = without_other_tenants(user, [visible_vault(user, vault.pk)], "updated_by")
        facts = {**self.get_serializer(row).data, "text": None}
        if vault_permissions(user, row).read:
            facts["text"] = vault_text(row)
        headers = {"ETag": f'"{row.version}"', "Cache-Control": "no-store"}
        return Response(facts, status=status, headers=headers)


def _readable(actor: User, pk: str) -> Vault:
    """The vault, where the user may read its text."""
    vault = visible_vault(actor, pk)
    if not vault_permissions(actor, vault).read:
        raise NotFound("There is no such thing, or you may not see it.")
    return vault


def _checked(serializer: type[BaseSerializer[Any]], request: Request) -> dict[str, Any]:
    body = serializer(data=request.data)
    body.is_valid(raise_exception=True)
    values: dict[str, Any] = body.validated_data
    return values


def _wanted(request: Request) -> dict[str, str]:
    wanted = {name: request.query_params.get(name, "") for name in FILTERS}
    for name in (name for name, value in wanted.items() if "\0" in value):
        raise BadInput(f"{name} holds a NUL character.", fields={name: "holds a NUL character"})
    for name, known in (("kind", {"personal", "group", ""}), ("is_active", {"true", "false", ""})):
        if wanted[name] not in known:
            problem = f"must be one of {', '.join(sorted(known - {''}))}"
            raise BadInput(f"{name} {problem}.", fields={name: problem})
    return wanted


def _group(user: User, name: str | None) -> Group | None:
    """The group of this name, among those that the user administers."""
    if name is None:
        return None
    if not manages_people(user):
        raise NotAllowed("Only administrators create vaults of groups.")
    group = groups_visible_to(user).filter(name=name).first()
    if group is None:
        raise BadInput("group is not known.", fields={"group": "is not known"})
    return group
