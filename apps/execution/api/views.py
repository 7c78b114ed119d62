"""REST that changes nodes, for administrators."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.selectors import pools_visible_to
from apps.accounts.api.permissions import person
from apps.accounts.models import User
from apps.core import clock
from apps.core.errors import BadInput
from apps.execution.api.serializers import (
    HostKeySerializer,
    NodeAddSerializer,
    NodeChangeSerializer,
    NodeCheckedSerializer,
    NodeCheckSerializer,
    NodeUseQuerySerializer,
    NodeUseSerializer,
    RekeySerializer,
    RemoveSerializer,
)
from apps.execution.connections import pinned_key
from apps.execution.services.node_changes import node_edit, node_rekey
from apps.execution.services.node_examination import machine_examine
from apps.execution.services.node_keys import node_key_path
from apps.execution.services.node_registration import (
    host_key_confirmed,
    host_key_of,
    node_add,
    node_host_key,
)
from apps.execution.services.node_removal import node_remove, tasks_on
from apps.nodes.api import views
from apps.nodes.api.serializers import NodeSerializer
from apps.policies.selectors import by_name_or_id
from apps.tasks.selectors.node_use import node_use_steps


class NodeViewSet(views.BaseNodeViewSet):
    """Machines that run tasks."""

    @extend_schema(request=NodeAddSerializer, responses={201: NodeSerializer})
    def create(self, request: Request) -> Response:
        """Reach the machine, install the helper, read its inventory, and keep it; else nothing."""
        values = _values(NodeAddSerializer(data=request.data), request.user)
        wanted = values.pop("fingerprint")
        key = host_key_confirmed(values["address"], values.get("port", 22), wanted)
        values.setdefault("pool", None)
        node = node_add(actor=person(request), host_key=key, **values)
        return Response(NodeSerializer(node).data, status=201)

    @extend_schema(request=NodeChangeSerializer, responses=NodeSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Change what is sent; another address, account, key or runtime is tried before it is kept.

        What runs there goes on. Account, runtime and state folder change only while nothing does.
        """
        node = self.get_object()
        values = _values(NodeChangeSerializer(data=request.data, partial=True), request.user)
        return self._answer(node_edit(actor=person(request), node=node, values=values))

    @extend_schema(request=NodeCheckSerializer, responses=NodeCheckedSerializer, filters=False)
    @action(detail=False, methods=["post"], pagination_class=None)
    def check(self, request: Request) -> Response:
        """Try a machine before it is added: its host key, and once that is confirmed, all else."""
        values = _values(NodeCheckSerializer(data=request.data), request.user)
        wanted = values.pop("fingerprint", "")
        if not wanted:
            key = node_host_key(address=values["address"], port=values.get("port", 22))
            return Response(_checked(key.kind, key.fingerprint))
        key = host_key_confirmed(values["address"], values.get("port", 22), wanted)
        inventory, findings = machine_examine(host_key=key, **values)
        payload = _checked(key.kind, key.fingerprint, findings=findings, devices=inventory.devices)
        return Response(payload)

    @extend_schema(responses=HostKeySerializer)
    @action(detail=True, methods=["get"], url_path="host-key")
    def host_key(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """The pinned key's fingerprint and the one that the machine shows; nothing is sent."""
        node = self.get_object()
        shown, pinned = host_key_of(node), pinned_key(node)
        payload = {
            "pinned": pinned.fingerprint if pinned is not None else "",
            "shown": shown.fingerprint,
            "kind": shown.kind,
        }
        return Response(HostKeySerializer(payload).data)

    @extend_schema(parameters=[NodeUseQuerySerializer], responses=NodeUseSerializer, filters=False)
    @action(detail=True, pagination_class=None)
    def use(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """What it used of its CPUs, memory, disk and network in the last hours."""
        asked = NodeUseQuerySerializer(data=request.query_params)
        asked.is_valid(raise_exception=True)
        since = clock.now() - timedelta(hours=asked.validated_data["hours"])
        steps = node_use_steps(self.get_object(), since=since)
        return Response(NodeUseSerializer({"steps": steps}).data)

    @extend_schema(request=RekeySerializer)
    @action(detail=True, methods=["post"])
    def rekey(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Pin the host key that the machine shows now, once its fingerprint was compared."""
        node = self.get_object()
        body = RekeySerializer(data=request.data)
        body.is_valid(raise_exception=True)
        values = dict(body.validated_data)
        wanted = values.pop("fingerprint")
        key = host_key_of(node, wanted=wanted)
        return self._answer(node_rekey(actor=person(request), node=node, host_key=key, **values))

    @extend_schema(request=RemoveSerializer)
    @action(detail=True, methods=["post"])
    def remove(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Remove a node on which nothing runs; forced: stop what runs there, then remove it."""
        body = RemoveSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        node = self.get_object()
        stops = tasks_on(node)
        removed: Any = node_remove(
            actor=person(request),
            node=node,
            is_forced=body.validated_data["force"],
            reason=body.validated_data["reason"],
        )
        removed.stops = [task.name for task in stops]
        return self._answer(removed)


def _values(body: NodeChangeSerializer, user: Any) -> dict[str, Any]:
    """Columns of the node, and the fingerprint where one was sent."""
    body.is_valid(raise_exception=True)
    values: dict[str, Any] = dict(body.validated_data)
    if "key" in values:
        values["key_path"] = node_key_path(values.pop("key"))
    if values.get("pool") is not None:
        values["pool"] = _pool(user, values["pool"])
    return values


def _pool(user: User, given: str | int) -> Any:
    pool = by_name_or_id(pools_visible_to(user), given)
    if pool is None:
        raise BadInput("There is no such pool.", fields={"pool": "is not known"})
    return pool


def _checked(
    kind: str, fingerprint: str, *, findings: Any = (), devices: Any = ()
) -> dict[str, Any]:
    payload = {"kind": kind, "fingerprint": fingerprint, "findings": findings, "devices": devices}
    return dict(NodeCheckedSerializer(payload).data)
