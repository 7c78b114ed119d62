"""REST of pools, profiles, policies and queues."""

from typing import Any

from django.db.models import Prefetch, QuerySet
from django_filters.rest_framework import CharFilter, FilterSet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet, ReadOnlyModelViewSet

from apps.access.selectors import (
    policies_administered_by,
    policies_connectable_by,
    policies_visible_to,
    pools_visible_to,
    profiles_connectable_by,
    profiles_used_by,
    profiles_visible_to,
    queues_managed_by,
    queues_settable_by,
    queues_visible_to,
)
from apps.accounts.api.permissions import person
from apps.accounts.selectors import (
    groups_visible_to,
    is_admin,
    is_queue_admin,
    tenants_administered_by,
)
from apps.configuration.api.exceeders import ExceedersMixin
from apps.configuration.api.previews import PreviewSerializer
from apps.configuration.api.request_checks import (
    require_admin,
    require_changeable,
    require_policy_maker,
    validated_body,
)
from apps.configuration.api.request_serializers import (
    ConnectSerializer,
    PolicyChangeSerializer,
    QueueChangeSerializer,
    ReorderSerializer,
)
from apps.configuration.api.restrictions import RestrictionMixin
from apps.configuration.api.serializers import (
    PolicySerializer,
    PoolSerializer,
    ProfileSerializer,
    QueueSerializer,
)
from apps.configuration.services.policies import policy_change, policy_create, policy_remove
from apps.configuration.services.pools import (
    policy_pause,
    policy_resume,
    pool_pause,
    pool_resume,
)
from apps.configuration.services.preview import policy_change_preview, policy_create_preview
from apps.configuration.services.queues import (
    profile_connect,
    profile_disconnect,
    queue_change,
    queue_pause,
    queue_reorder,
    queue_resume,
)
from apps.core.api import KeysetPagination
from apps.core.errors import BadInput, NotAllowed, NotFound
from apps.core.filters import id_filter
from apps.core.serializers import PauseSerializer
from apps.policies.models import Policy, Pool, PoolLink, Profile, Queue
from apps.policies.selectors import by_name_or_id

ID = "[0-9]{1,18}"


class _ByPosition(KeysetPagination):
    ordering = ("position", "id")  # type: ignore[assignment]  # DRF takes tuples too


class _ByName(KeysetPagination):
    ordering = "name"


class _QueueFilter(FilterSet):  # type: ignore[misc]  # comes without types
    """Filters by plain ids, which reveal nothing of hidden objects."""

    policy = id_filter("policy_id")
    profile = id_filter("profile_id")
    name = CharFilter()


class PoolViewSet(ReadOnlyModelViewSet[Pool]):
    """Live pools. They are changed through the draft."""

    allows_acting = True
    serializer_class = PoolSerializer
    pagination_class = _ByPosition
    queryset = Pool.objects.none()
    lookup_value_regex = ID

    def get_queryset(self) -> QuerySet[Pool]:
        return pools_visible_to(self.request.user).select_related("dedicated_to")

    @extend_schema(request=PauseSerializer)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Admit nothing until it is resumed; running work goes on."""
        body = validated_body(PauseSerializer, request)
        pool = self.get_object()
        require_admin(request)
        pool_pause(actor=person(request), pool=pool, reason=body["reason"])
        return Response(self.get_serializer(pool).data)

    @extend_schema(request=None)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Lift the pause."""
        pool = self.get_object()
        require_admin(request)
        pool_resume(actor=person(request), pool=pool)
        return Response(self.get_serializer(pool).data)


class ProfileViewSet(ReadOnlyModelViewSet[Profile]):
    """Live profiles. They are changed through the draft."""

    allows_acting = True
    serializer_class = ProfileSerializer
    pagination_class = _ByPosition
    queryset = Profile.objects.none()
    lookup_value_regex = ID

    def get_queryset(self) -> QuerySet[Profile]:
        links = PoolLink.objects.select_related("pool").order_by("routing_rank", "pk")
        profiles = profiles_visible_to(self.request.user)
        if not is_admin(self.request.user):
            return profiles
        return profiles.prefetch_related(Prefetch("links", queryset=links))

    def get_serializer_context(self) -> dict[str, Any]:
        context = dict(super().get_serializer_context())
        user = self.request.user
        if not is_admin(user) and tenants_administered_by(user):
            context["used"] = set(profiles_used_by(user).values_list("pk", flat=True))
        return context


class PolicyViewSet(
    ExceedersMixin, RestrictionMixin, ListModelMixin, RetrieveModelMixin, GenericViewSet[Policy]
):
    """Policies. They apply at once."""

    serializer_class = PolicySerializer
    pagination_class = _ByPosition
    queryset = Policy.objects.none()
    lookup_value_regex = ID

    def get_queryset(self) -> QuerySet[Policy]:
        visible = policies_visible_to(self.request.user)
        rows = visible.select_related("group", "parent", "spending")
        return rows.prefetch_related("amounts")

    @extend_schema(request=PolicyChangeSerializer, responses={201: PolicySerializer})
    def create(self, request: Request) -> Response:
        """Create a policy, last in every order; in a tenant it is below another one."""
        require_policy_maker(request)
        body = self._values(validated_body(PolicyChangeSerializer, request))
        policy = policy_create(actor=person(request), **body)
        return self._answer(policy, status=201)

    @extend_schema(request=PolicyChangeSerializer, responses=PolicySerializer)
    def partial_update(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Change the fields that are sent; amounts that are sent replace all of their kind."""
        policy = self.get_object()
        require_changeable(request, policy)
        body = self._values(validated_body(PolicyChangeSerializer, request, is_partial=True))
        return self._answer(policy_change(actor=person(request), policy=policy, changes=body))

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Close its queues: waiting tasks become drafts, running ones finish."""
        policy = self.get_object()
        require_changeable(request, policy)
        policy_remove(actor=person(request), policy=policy)
        return Response(status=204)

    @extend_schema(
        operation_id="policies_preview_new",
        request=PolicyChangeSerializer,
        responses=PreviewSerializer,
    )
    @action(detail=False, methods=["post"], url_path="preview", pagination_class=None)
    def preview_new(self, request: Request) -> Response:
        """What a new policy would do to waiting and running tasks; nothing is kept."""
        require_policy_maker(request)
        body = self._values(validated_body(PolicyChangeSerializer, request))
        preview = policy_create_preview(actor=person(request), **body)
        return Response(PreviewSerializer(preview).data)

    @extend_schema(request=PolicyChangeSerializer, responses=PreviewSerializer)
    @action(detail=True, methods=["post"])
    def preview(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """What saving these changes would do to waiting and running tasks; nothing is kept."""
        policy = self.get_object()
        require_changeable(request, policy)
        changes = self._values(validated_body(PolicyChangeSerializer, request, is_partial=True))
        preview = policy_change_preview(actor=person(request), policy=policy, changes=changes)
        return Response(PreviewSerializer(preview).data)

    @extend_schema(request=PauseSerializer)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Admit nothing of it, and of those below it, until it is resumed."""
        body = validated_body(PauseSerializer, request)
        policy = self.get_object()
        require_changeable(request, policy)
        return self._answer(
            policy_pause(actor=person(request), policy=policy, reason=body["reason"])
        )

    @extend_schema(request=None)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Lift the pause."""
        policy = self.get_object()
        require_changeable(request, policy)
        return self._answer(policy_resume(actor=person(request), policy=policy))

    @extend_schema(responses=QueueSerializer(many=True))
    @action(detail=True, methods=["get"], pagination_class=None)
    def profiles(self, request: Request, pk: str) -> Response:
        """List the queues that connect its profiles, as far as you may see them."""
        policy = self._connectable(request, pk) or self.get_object()
        queues = queues_visible_to(request.user).filter(policy=policy)
        rows = queues.select_related("policy", "profile").order_by("name")
        return Response(QueueSerializer(rows, many=True, context={"request": request}).data)

    @extend_schema(request=ConnectSerializer, responses={201: QueueSerializer})
    @profiles.mapping.post
    def connect(self, request: Request, pk: str) -> Response:
        """Connect a profile: makes the queue and lets the policy's group use it."""
        policy = self._connectable(request, pk)
        if policy is None:
            self.get_object()
            raise NotAllowed("Only administrators of queues connect profiles.")
        body = validated_body(ConnectSerializer, request)
        profile = by_name_or_id(profiles_connectable_by(request.user), body["profile"])
        if profile is None:
            raise _unknown("profile", body["profile"])
        queue = profile_connect(
            actor=person(request), policy=policy, profile=profile, queue_name=body.get("queue")
        )
        return Response(QueueSerializer(queue, context={"request": request}).data, status=201)

    @extend_schema(responses={204: None})
    @action(detail=True, methods=["delete"], url_path="profiles/(?P<profile>[^/]+)")
    def disconnect(self, request: Request, pk: str, profile: str) -> Response:
        """Close the queue of a profile, by its name or id.

        Waiting tasks become drafts, running ones finish.
        """
        policy = self._connectable(request, pk)
        if policy is None:
            self.get_object()
            raise NotAllowed("Only administrators of queues disconnect profiles.")
        live = policy.queues.filter(removed_at__isnull=True)
        connected = Profile.objects.filter(pk__in=live.values("profile"))
        queue = live.filter(profile=by_name_or_id(connected, profile)).first()
        if queue is None:
            raise NotFound("This profile is not connected to the policy.")
        profile_disconnect(actor=person(request), queue=queue)
        return Response(status=204)

    def _connectable(self, request: Request, pk: str) -> Policy | None:
        return policies_connectable_by(request.user).filter(pk=int(pk)).first()

    def _values(self, body: dict[str, Any]) -> dict[str, Any]:
        """Names of group and parent as rows."""
        values = dict(body)
        if "group" in body:
            group = groups_visible_to(self.request.user).filter(name=body["group"]).first()
            if group is None:
                raise _unknown("group", body["group"])
            values["group"] = group
        if body.get("parent") is not None:
            parents = policies_administered_by(self.request.user)
            values["parent"] = by_name_or_id(parents, body["parent"])
            if values["parent"] is None:
                raise _unknown("parent", body["parent"])
        return values

    def _answer(self, policy: Policy, *, status: int = 200) -> Response:
        return Response(self.get_serializer(policy).data, status=status)


class QueueViewSet(ListModelMixin, GenericViewSet[Queue]):
    """Queues, addressed by name or id. Connecting a profile to a policy creates one."""

    allows_acting = True
    serializer_class = QueueSerializer
    pagination_class = _ByName
    queryset = Queue.objects.none()
    lookup_field = "name_or_id"
    lookup_value_regex = "[a-z0-9][a-z0-9._-]{0,62}"
    filterset_class = _QueueFilter

    def get_queryset(self) -> QuerySet[Queue]:
        return queues_visible_to(self.request.user).select_related("policy", "profile")

    def get_object(self) -> Queue:
        queue = by_name_or_id(self.get_queryset(), self.kwargs["name_or_id"])
        if queue is None:
            raise NotFound("There is no such queue, or you may not see it.")
        return queue

    def retrieve(self, _request: Request, name_or_id: str) -> Response:  # noqa: ARG002  # the route's
        """One queue with its settings."""
        return Response(self.get_serializer(self.get_object()).data)

    @extend_schema(request=QueueChangeSerializer)
    def partial_update(self, request: Request, name_or_id: str) -> Response:  # noqa: ARG002
        """Change settings or the name; the id stays."""
        queue = self._administered(request)
        body = validated_body(QueueChangeSerializer, request, is_partial=True)
        changed = queue_change(actor=person(request), queue=queue, changes=body)
        return Response(self.get_serializer(changed).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, name_or_id: str) -> Response:  # noqa: ARG002
        """Close the queue: waiting tasks become drafts, running ones finish."""
        profile_disconnect(actor=person(request), queue=self._administered(request))
        return Response(status=204)

    @extend_schema(request=PauseSerializer)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, name_or_id: str) -> Response:  # noqa: ARG002
        """Admit nothing of it until it is resumed; running work goes on."""
        body = validated_body(PauseSerializer, request)
        paused = queue_pause(
            actor=person(request), queue=self._managed(request), reason=body["reason"]
        )
        return Response(self.get_serializer(paused).data)

    @extend_schema(request=None)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, name_or_id: str) -> Response:  # noqa: ARG002
        """Lift the pause."""
        resumed = queue_resume(actor=person(request), queue=self._managed(request))
        return Response(self.get_serializer(resumed).data)

    @extend_schema(request=ReorderSerializer, responses=QueueSerializer(many=True))
    @action(detail=False, methods=["post"], pagination_class=None, filter_backends=[])
    def reorder(self, request: Request) -> Response:
        """Set whose tasks come first in a profile, live and in the draft.

        Administrators of a tenant name their own queues, which exchange their places.
        """
        settable = queues_settable_by(request.user).select_related("policy", "profile")
        if not is_queue_admin(request.user) and not settable.exists():
            raise NotAllowed("Only administrators of queues set this order.")
        body = validated_body(ReorderSerializer, request)
        profile = by_name_or_id(profiles_connectable_by(request.user), body["profile"])
        if profile is None:
            raise _unknown("profile", body["profile"])
        of_profile = settable.filter(profile=profile)
        order = [by_name_or_id(of_profile, name) for name in body["order"]]
        for index, (name, queue) in enumerate(zip(body["order"], order, strict=True)):
            if queue is None:
                raise _unknown(f"order.{index}", name)
        ordered = queue_reorder(
            actor=person(request), profile=profile, order=[q for q in order if q is not None]
        )
        seen = set(settable.values_list("pk", flat=True))
        shown = [queue for queue in ordered if queue.pk in seen]
        return Response(self.get_serializer(shown, many=True).data)

    def _administered(self, request: Request) -> Queue:
        queue = self.get_object()
        if not queues_settable_by(request.user).filter(pk=queue.pk).exists():
            raise NotAllowed("Only administrators of queues change them.")
        return queue

    def _managed(self, request: Request) -> Queue:
        queue = self.get_object()
        may = is_queue_admin(request.user) or queues_managed_by(request.user).filter(pk=queue.pk)
        if not may:
            raise NotAllowed("You may see this queue, but not manage it.")
        return queue


def _unknown(field: str, given: str) -> BadInput:
    return BadInput(f"There is no {given!r}.", fields={field: f"{given!r} is not known"})
