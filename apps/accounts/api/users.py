"""REST of people, for administrators; those of a tenant reach its own people."""

from typing import Any

from django.contrib.auth.models import Group
from django.db.models import Prefetch, QuerySet
from django_filters.rest_framework import (
    CharFilter,
    ChoiceFilter,
    DjangoFilterBackend,
    FilterSet,
    NumberFilter,
)
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.filters import OrderingFilter
from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api.permissions import IsPeopleAdmin, person
from apps.accounts.links import join_address
from apps.accounts.models import USERS, Invitation, PersonStatus, User
from apps.accounts.selectors import (
    NEVER,
    STATUSES,
    groups_visible_to,
    people_managed_by,
    people_named,
    people_visible_to,
)
from apps.accounts.services.invitations import (
    DAYS,
    MOST_DAYS,
    NewInvitation,
    invitation_renew,
    invitation_revoke,
    person_invite,
)
from apps.accounts.services.people_changes import (
    person_activate,
    person_change,
    person_deactivate,
)
from apps.core.api import KeysetPagination
from apps.core.errors import BadInput
from apps.core.serializers import NameSerializer, StrictSerializer


class InvitationSerializer(serializers.ModelSerializer[Invitation]):
    """`mail_detail` is the server's error where the mail could not be sent."""

    class Meta:
        model = Invitation
        fields = ["created_at", "expires_at", "mail_state", "mail_detail"]
        read_only_fields = fields


class UserSerializer(serializers.ModelSerializer[User]):
    """`last_active` is null for people who never signed in."""

    status = serializers.ChoiceField(choices=PersonStatus.choices, read_only=True)
    groups = NameSerializer(many=True, read_only=True)
    last_active = serializers.SerializerMethodField()
    invitation = serializers.SerializerMethodField()

    class Meta:
        model = User
        fields = [
            "id",
            "username",
            "first_name",
            "last_name",
            "email",
            "status",
            "groups",
            "time_zone",
            "date_joined",
            "last_active",
            "invitation",
        ]
        read_only_fields = fields

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_last_active(self, user: User) -> str | None:
        at = getattr(user, "last_active", NEVER)
        text: str | None = serializers.DateTimeField().to_representation(at)
        return None if at == NEVER else text

    @extend_schema_field(InvitationSerializer(allow_null=True))
    def get_invitation(self, user: User) -> dict[str, Any] | None:
        found = getattr(user, "invitation", None)
        return InvitationSerializer(found).data if found is not None else None


class NewInvitationSerializer(UserSerializer):
    """`link` is in this response and nowhere else; with `is_mailed` it is being sent, too."""

    link = serializers.CharField(read_only=True)
    is_mailed = serializers.BooleanField(read_only=True)

    class Meta(UserSerializer.Meta):
        fields = [*UserSerializer.Meta.fields, "link", "is_mailed"]
        read_only_fields = fields


class PasswordLinkSerializer(StrictSerializer):
    days = serializers.IntegerField(
        default=DAYS, help_text=f"How long the link works: 1 to {MOST_DAYS} days."
    )


class InviteSerializer(PasswordLinkSerializer):
    """A user name, an e-mail address, or both; without a user name the person chooses one."""

    username = serializers.CharField(max_length=150, allow_blank=True, default="")
    email = serializers.CharField(max_length=254, allow_blank=True, default="")
    groups = serializers.ListField(
        child=serializers.CharField(max_length=150), max_length=200, default=list
    )


class UserChangeSerializer(StrictSerializer):
    """`groups` are names, and replace those that the person is in; `Users` stays."""

    username = serializers.CharField(max_length=150)
    first_name = serializers.CharField(max_length=150, allow_blank=True)
    last_name = serializers.CharField(max_length=150, allow_blank=True)
    email = serializers.EmailField(max_length=254, allow_blank=True)
    groups = serializers.ListField(child=serializers.CharField(max_length=150), max_length=200)


class _ByName(KeysetPagination):
    ordering = "username"
    # All who never signed in have the same `last_active`: pages must go on among them, too.
    offset_cutoff = 10_000_000


class _Ordering(OrderingFilter):
    """Orders equal people by their ids, the same on every page."""

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        found = super().get_ordering(request, queryset, view)
        return (*(found or ("username",)), "id")


class _UserFilter(FilterSet):  # type: ignore[misc]  # comes without types
    search = CharFilter(method="by_word", help_text="A part of names or e-mail address.")
    status = ChoiceFilter(choices=PersonStatus.choices, method="by_status")
    group = NumberFilter(method="by_group", min_value=0, max_value=2**62, decimal_places=0)

    def by_word(self, rows: QuerySet[User], _name: str, value: str) -> QuerySet[User]:
        return people_named(rows, value)

    def by_group(self, rows: QuerySet[User], _name: str, value: int) -> QuerySet[User]:
        visible = groups_visible_to(self.request.user).filter(pk=int(value))
        return rows.filter(groups__in=visible)

    def by_status(self, rows: QuerySet[User], _name: str, value: str) -> QuerySet[User]:
        return rows.filter(STATUSES[PersonStatus(value)])


class UserViewSet(ReadOnlyModelViewSet[User]):
    """People. Nobody is deleted: accounts of people who leave are deactivated."""

    permission_classes = (IsAuthenticated, IsPeopleAdmin)
    serializer_class = UserSerializer
    pagination_class = _ByName
    queryset = User.objects.none()
    lookup_value_regex = "[0-9]{1,18}"
    filter_backends = (DjangoFilterBackend, _Ordering)
    filterset_class = _UserFilter
    ordering_fields = ("username", "email", "date_joined", "last_active")
    ordering = ("username",)

    def get_queryset(self) -> QuerySet[User]:
        user = self.request.user
        is_reading = self.request.method in SAFE_METHODS
        visible = people_visible_to(user) if is_reading else people_managed_by(user)
        groups = Prefetch("groups", queryset=groups_visible_to(user).order_by("name", "pk"))
        return visible.select_related("invitation").prefetch_related(groups)

    @extend_schema(request=InviteSerializer, responses={201: NewInvitationSerializer})
    def create(self, request: Request) -> Response:
        """Invite a person: the answer holds a link that works once."""
        body = _validated_data(InviteSerializer, request)
        groups = groups_named(person(request), body.pop("groups"))
        invited = person_invite(
            actor=person(request), address=join_address(request), groups=groups, **body
        )
        return self._invitation_response(invited, status=201)

    @extend_schema(request=UserChangeSerializer, responses=UserSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Change names, e-mail address or groups; fields that are left out stay."""
        user = self.get_object()
        body = _validated_data(UserChangeSerializer, request, is_partial=True)
        groups = groups_named(person(request), body.pop("groups")) if "groups" in body else None
        person_change(actor=person(request), user=user, changes=body, groups=groups)
        return self._user_response(user)

    @extend_schema(request=None, responses=UserSerializer)
    @action(detail=True, methods=["post"])
    def deactivate(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """End sessions and credentials; the tasks stay. Not for the last administrator, nor for the
        break-glass one while passwords are switched off.
        """
        return self._user_response(person_deactivate(actor=person(request), user=self.get_object()))

    @extend_schema(request=None, responses=UserSerializer)
    @action(detail=True, methods=["post"])
    def activate(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Let them sign in again; credentials stay revoked."""
        return self._user_response(person_activate(actor=person(request), user=self.get_object()))

    @extend_schema(request=PasswordLinkSerializer, responses=NewInvitationSerializer)
    @action(detail=True, methods=["post"])
    def invitation(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Replace the link; for a person who signed in before, it sets a password."""
        invited = invitation_renew(
            actor=person(request),
            user=self.get_object(),
            address=join_address(request),
            **_validated_data(PasswordLinkSerializer, request),
        )
        return self._invitation_response(invited)

    @extend_schema(responses={204: None})
    @invitation.mapping.delete
    def invitation_remove(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Revoke the link, and remove its account if nobody has ever signed in to it."""
        invitation_revoke(actor=person(request), user=self.get_object())
        return Response(status=204)

    def _invitation_response(self, invited: NewInvitation, *, status: int = 200) -> Response:
        row = self.get_queryset().get(pk=invited.user.pk)
        facts = UserSerializer(row).data
        return Response(
            {**facts, "link": invited.link, "is_mailed": invited.is_mailed}, status=status
        )

    def _user_response(self, user: User) -> Response:
        return Response(UserSerializer(self.get_queryset().get(pk=user.pk)).data)


def groups_named(actor: User, names: list[str]) -> list[Group]:
    """The groups of these names, among those that `actor` looks after.

    Raises:
        BadInput: one is not known.
    """
    rows = groups_visible_to(actor).filter(name__in=names) | Group.objects.filter(
        name=USERS, name__in=names
    )
    found = {group.name: group for group in rows}
    missing = [name for name in names if name not in found]
    if missing:
        words = f"{missing[0]!r} is not known"
        raise BadInput(f"groups: {words}.", fields={"groups": words})
    return list(found.values())


def _validated_data(
    kind: type[StrictSerializer], request: Request, *, is_partial: bool = False
) -> dict[str, Any]:
    body = kind(data=request.data, partial=is_partial)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)
