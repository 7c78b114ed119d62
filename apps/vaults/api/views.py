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

from apps.accounts.api.permissions import person
from apps.accounts.models import User
from apps.accounts.selectors import groups_visible_to, manages_people
from apps.core.api import KeysetPagination, if_match
from apps.core.errors import BadInput, NotAllowed, NotFound
from apps.core.keyring import CannotUnseal, SealContext, seal, unseal
from apps.vaults.api.serializers import (
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
from apps.vaults.models import Vault
from apps.vaults.selectors.effective import vault_text
from apps.vaults.selectors.seen import (
    FILTERS,
    vault_history,
    vault_rights,
    vault_seen,
    vault_version_seen,
    vault_versions,
    vaults_listed,
    vaults_told,
)
from apps.vaults.selectors.walls import without_strangers
from apps.vaults.services.checking import vault_text_check
from apps.vaults.services.vaults import (
    vault_change,
    vault_create,
    vault_move,
    vault_remove,
    vault_restore,
    vault_switch,
)

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
    """Cursors hold the position sealed: it is among the vaults of all tenants."""

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
            # What `paginate_queryset` refuses as a cursor that somebody made up.
            raise ValueError(cursor.position) from error


def _at(cursor: Cursor, position: str) -> Cursor:
    return cursor._replace(position=position)  # type: ignore[arg-type]  # a text, not a number


class _ByVersion(KeysetPagination):
    ordering = ("-version", "-id")  # type: ignore[assignment]  # DRF takes tuples too


class VaultViewSet(GenericViewSet[Vault]):
    """Vaults: one's own, those of one's groups, and for administrators all."""

    serializer_class = VaultSerializer
    pagination_class = _ByPosition
    filter_backends = []
    queryset = Vault.objects.none()
    lookup_value_regex = UUID

    def get_queryset(self) -> QuerySet[Vault]:
        return vaults_told(person(self.request))

    @extend_schema(parameters=_FILTERS, responses=VaultSerializer(many=True))
    def list(self, request: Request) -> Response:
        """Vaults without their texts, the lowest first."""
        wanted = _wanted(request)
        user = person(request)
        page = self.paginate_queryset(vaults_listed(user, wanted)) or []
        rows = without_strangers(user, page, "updated_by")
        return self.get_paginated_response(self.get_serializer(rows, many=True).data)

    @extend_schema(request=VaultCreateSerializer, responses={201: VaultTextSerializer})
    def create(self, request: Request) -> Response:
        """A new vault; it is off unless `is_active` says otherwise."""
        body = _checked(VaultCreateSerializer, request)
        group = _group(person(request), body.pop("group"))
        vault = vault_create(actor=person(request), group=group, **body)
        return self._told(request, vault, status=201)

    @extend_schema(responses=VaultTextSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        """A vault, with its text for those who may read it; its ETag is the version."""
        return self._told(request, vault_seen(person(request), pk))

    @extend_schema(request=VaultChangeSerializer, parameters=[_ETAG], responses=VaultTextSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change or switch it. All but switching needs If-Match."""
        actor = person(request)
        vault = vault_seen(actor, pk)
        changes = _checked(VaultChangeSerializer, request)
        is_active = changes.pop("is_active", None)
        if changes:
            version = if_match(request, is_required=True)
            vault_change(actor=actor, vault=vault, changes=changes, version=version)
        if is_active is not None:
            vault_switch(actor=actor, vault=vault, is_active=is_active)
        return self._told(request, vault)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Remove it; tasks that began with it keep what they have."""
        actor = person(request)
        vault_remove(actor=actor, vault=vault_seen(actor, pk))
        return Response(status=204)

    @extend_schema(request=VaultMoveSerializer, responses=VaultTextSerializer)
    @action(detail=True, methods=["post"])
    def move(self, request: Request, pk: str) -> Response:
        """Give it another place among those of its owner, or of all groups."""
        actor = person(request)
        body = _checked(VaultMoveSerializer, request)
        vault = vault_seen(actor, pk)
        vault_move(actor=actor, vault=vault, place=body["place"])
        return self._told(request, vault)

    @extend_schema(responses=VaultEventSerializer(many=True))
    @action(detail=True, pagination_class=KeysetPagination)
    def history(self, request: Request, pk: str) -> Response:
        """Who did what with it, the latest first."""
        actor = person(request)
        vault = vault_seen(actor, pk)
        if not vault_rights(actor, vault).switch_off and not vault_rights(actor, vault).read:
            raise NotFound("There is no such thing, or you may not see it.")
        events: Any = vault_history(vault)
        page: Any = self.paginate_queryset(events) or []
        told = without_strangers(actor, page, "actor")
        return self.get_paginated_response(VaultEventSerializer(told, many=True).data)

    @extend_schema(responses=VaultVersionSerializer(many=True))
    @action(detail=True, pagination_class=_ByVersion)
    def versions(self, request: Request, pk: str) -> Response:
        """What it held before, the latest first, for those who may read its text."""
        actor = person(request)
        rows: Any = vault_versions(actor, _readable(actor, pk))
        page: Any = self.paginate_queryset(rows) or []
        told = without_strangers(actor, page, "by")
        return self.get_paginated_response(VaultVersionSerializer(told, many=True).data)

    @extend_schema(responses=VaultVersionTextSerializer)
    @action(detail=True, url_path="versions/(?P<number>[1-9][0-9]{0,8})")
    def version(self, request: Request, pk: str, number: str) -> Response:
        """One version, with its text."""
        actor = person(request)
        row = vault_version_seen(actor, vault_seen(actor, pk), int(number))
        headers = {"Cache-Control": "no-store"}
        return Response(VaultVersionTextSerializer(row).data, headers=headers)

    @extend_schema(
        request=VaultRestoreSerializer, parameters=[_ETAG], responses=VaultTextSerializer
    )
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, pk: str) -> Response:
        """Let it hold again what it held in a version before; needs If-Match."""
        actor = person(request)
        vault = vault_seen(actor, pk)
        body = _checked(VaultRestoreSerializer, request)
        version = if_match(request, is_required=True)
        vault_restore(actor=actor, vault=vault, to=body["to"], version=version)
        return self._told(request, vault)

    @extend_schema(request=VaultCheckSerializer, responses=VaultCheckedSerializer)
    @action(detail=False, methods=["post"])
    def validate(self, request: Request) -> Response:
        """Whether a text would do, and if not, where it would not."""
        body = _checked(VaultCheckSerializer, request)
        found = vault_text_check(text=body["text"], format=body["format"])
        return Response(VaultCheckedSerializer(found).data)

    def _told(self, request: Request, vault: Vault, *, status: int = 200) -> Response:
        user = person(request)
        (row,) = without_strangers(user, [vault_seen(user, vault.pk)], "updated_by")
        facts = {**self.get_serializer(row).data, "text": None}
        if vault_rights(user, row).read:
            facts["text"] = vault_text(row)
        headers = {"ETag": f'"{row.version}"', "Cache-Control": "no-store"}
        return Response(facts, status=status, headers=headers)


def _readable(actor: User, pk: str) -> Vault:
    """The vault, where its text may be read."""
    vault = vault_seen(actor, pk)
    if not vault_rights(actor, vault).read:
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
        raise BadInput(f"{name} holds a NUL sign.", fields={name: "holds a NUL sign"})
    for name, known in (("kind", {"personal", "group", ""}), ("is_active", {"true", "false", ""})):
        if wanted[name] not in known:
            problem = f"must be one of {', '.join(sorted(known - {''}))}"
            raise BadInput(f"{name} {problem}.", fields={name: problem})
    return wanted


def _group(user: User, name: str | None) -> Group | None:
    """The group of this name, of those that the user looks after."""
    if name is None:
        return None
    if not manages_people(user):
        raise NotAllowed("Only administrators make vaults of groups.")
    group = groups_visible_to(user).filter(name=name).first()
    if group is None:
        raise BadInput("group is not known.", fields={"group": "is not known"})
    return group
