"""REST of nodes and volumes, for administrators."""

from typing import Any

from django.db.models import QuerySet
from django_filters.rest_framework import CharFilter, ChoiceFilter, FilterSet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.access.selectors import pools_visible_to
from apps.accounts.api.permissions import IsAdmin, person
from apps.core.api import KeysetPagination
from apps.core.errors import BadInput
from apps.core.filters import id_filter
from apps.core.serializers import PauseSerializer
from apps.nodes.api.serializers import (
    DeclareOffSerializer,
    InstallationSerializer,
    MaintenanceSerializer,
    NodeSerializer,
    VolumeChangeSerializer,
    VolumeSerializer,
)
from apps.nodes.models import Installation, Node, NodeState, Volume
from apps.nodes.selectors import nodes_unsettled, nodes_visible_to, volumes_visible_to
from apps.nodes.services import (
    maintenance_plan,
    node_declare_off,
    node_dismiss_serial,
    node_drain,
    node_pause,
    node_resume,
    restore_confirm,
    volume_change,
    volume_create,
    volume_remove,
)

ID = "[0-9]{1,18}"


class _ByName(KeysetPagination):
    ordering = "name"


class _NodeFilter(FilterSet):  # type: ignore[misc]  # comes without types
    pool = id_filter("pool_id")
    state = ChoiceFilter(choices=NodeState.choices)
    name = CharFilter()


class BaseNodeViewSet(ReadOnlyModelViewSet[Node]):
    """Machines that run tasks: what is read and paused. apps/execution adds what reaches them."""

    permission_classes = (IsAdmin,)
    serializer_class = NodeSerializer
    pagination_class = _ByName
    queryset = Node.objects.none()
    lookup_value_regex = ID
    filterset_class = _NodeFilter

    def get_queryset(self) -> QuerySet[Node]:
        visible = nodes_visible_to(self.request.user)
        return visible.select_related("pool").prefetch_related("devices")

    @extend_schema(request=PauseSerializer)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Take nothing new until it is resumed; what runs there goes on."""
        body = PauseSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        reason = body.validated_data["reason"]
        return self._answer(
            node_pause(actor=person(request), node=self.get_object(), reason=reason)
        )

    @extend_schema(request=None)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """End the pause, the drain, and a removal that still waits for tasks."""
        return self._answer(node_resume(actor=person(request), node=self.get_object()))

    @extend_schema(request=None)
    @action(detail=True, methods=["post"])
    def drain(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Finish what runs and take nothing new."""
        return self._answer(node_drain(actor=person(request), node=self.get_object()))

    @extend_schema(request=DeclareOffSerializer)
    @action(detail=True, methods=["post"], url_path="declare-off")
    def declare_off(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """A silent machine is switched off: what ran there is lost, and may run elsewhere."""
        body = DeclareOffSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        reason = body.validated_data["reason"]
        return self._answer(
            node_declare_off(actor=person(request), node=self.get_object(), reason=reason)
        )

    @extend_schema(request=None)
    @action(detail=True, methods=["post"], url_path="dismiss-serial")
    def dismiss_serial(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Show no longer that the node reported a serial without this installation's signature."""
        return self._answer(node_dismiss_serial(actor=person(request), node=self.get_object()))

    def _answer(self, node: Node) -> Response:
        return Response(self.get_serializer(node).data)


class VolumeViewSet(ReadOnlyModelViewSet[Volume]):
    """Paths on the nodes that tasks mount by name."""

    permission_classes = (IsAdmin,)
    serializer_class = VolumeSerializer
    pagination_class = _ByName
    queryset = Volume.objects.none()
    lookup_value_regex = ID

    def get_queryset(self) -> QuerySet[Volume]:
        return volumes_visible_to(self.request.user).select_related("pool")

    @extend_schema(request=VolumeChangeSerializer, responses={201: VolumeSerializer})
    def create(self, request: Request) -> Response:
        """A new volume."""
        values = self._values(request, is_partial=False)
        volume = volume_create(actor=person(request), values=values)
        return Response(VolumeSerializer(volume).data, status=201)

    @extend_schema(request=VolumeChangeSerializer, responses=VolumeSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Change what is sent; running work keeps what it mounted."""
        volume = self.get_object()
        values = self._values(request, is_partial=True)
        changed = volume_change(actor=person(request), volume=volume, values=values)
        return Response(VolumeSerializer(changed).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """New work cannot mount it any more."""
        volume_remove(actor=person(request), volume=self.get_object())
        return Response(status=204)

    def _values(self, request: Request, *, is_partial: bool) -> dict[str, Any]:
        body = VolumeChangeSerializer(data=request.data, partial=is_partial)
        body.is_valid(raise_exception=True)
        values: dict[str, Any] = dict(body.validated_data)
        if values.get("pool") is not None:
            pool = pools_visible_to(request.user).filter(pk=values["pool"]).first()
            if pool is None:
                raise BadInput("There is no such pool.", fields={"pool": "is not known"})
            values["pool"] = pool
        return values


class InstallationView(APIView):
    """The installation as a whole."""

    permission_classes = (IsAdmin,)

    @extend_schema(responses=InstallationSerializer)
    def get(self, _request: Request) -> Response:
        """Whether it was restored from a backup, and until when leases are granted."""
        return _installation(Installation.objects.get(id=1))


class MaintenanceView(APIView):
    """Planned work on the control plane."""

    permission_classes = (IsAdmin,)

    @extend_schema(request=MaintenanceSerializer, responses=InstallationSerializer)
    def post(self, request: Request) -> Response:
        """Grant leases that outlast it; 0 hours end it early."""
        body = MaintenanceSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        hours = body.validated_data["hours"]
        return _installation(maintenance_plan(actor=person(request), hours=hours))


class RestoreConfirmView(APIView):
    """After a backup was restored."""

    permission_classes = (IsAdmin,)

    @extend_schema(request=None, responses=InstallationSerializer)
    def post(self, request: Request) -> Response:
        """The restored database is right: what nodes run beyond it is ended, then passes go on."""
        return _installation(restore_confirm(actor=person(request)))


def _installation(row: Installation) -> Response:
    payload = dict(InstallationSerializer(row).data)
    waits = row.restored_at is not None
    payload["unsettled"] = [node.name for node in nodes_unsettled()] if waits else []
    return Response(payload)
