"""REST of the user's own account."""

from typing import Any

from django.db.models import prefetch_related_objects
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.api.permissions import person
from apps.accounts.models import User
from apps.accounts.selectors import groups_by_name
from apps.accounts.services.groups import group_leave
from apps.accounts.services.profile import profile_change
from apps.core.errors import BadInput
from apps.core.serializers import NameSerializer, StrictSerializer


class AccountSerializer(serializers.ModelSerializer[User]):
    groups = NameSerializer(many=True, read_only=True)

    class Meta:
        model = User
        fields = [
            "id",
            "username",
            "first_name",
            "last_name",
            "email",
            "time_zone",
            "is_service",
            "groups",
        ]
        read_only_fields = fields


class AccountChangeSerializer(StrictSerializer):
    """Another e-mail address needs the `current_password`."""

    username = serializers.CharField(
        max_length=150, help_text="Letters, digits and @ . + - _; not of service accounts."
    )
    first_name = serializers.CharField(max_length=150, allow_blank=True)
    last_name = serializers.CharField(max_length=150, allow_blank=True)
    email = serializers.EmailField(max_length=254, allow_blank=True)
    time_zone = serializers.CharField(
        max_length=64, allow_blank=True, help_text="Such as Europe/Berlin; empty: the browser's."
    )
    current_password = serializers.CharField(
        max_length=4096, allow_blank=True, trim_whitespace=False, write_only=True
    )


class AccountView(APIView):
    """Your own account."""

    @extend_schema(responses=AccountSerializer)
    def get(self, request: Request) -> Response:
        return _account_response(person(request))

    @extend_schema(request=AccountChangeSerializer, responses=AccountSerializer)
    def patch(self, request: Request) -> Response:
        """Change your names, time zone or e-mail address; fields that are left out stay."""
        body = AccountChangeSerializer(data=request.data, partial=True)
        body.is_valid(raise_exception=True)
        changes: dict[str, Any] = dict(body.validated_data)
        password = changes.pop("current_password", "")
        user = profile_change(user=person(request), changes=changes, password=password)
        return _account_response(user)


class LeaveGroupSerializer(StrictSerializer):
    group = serializers.CharField(max_length=150, help_text="Name of one of your groups.")


class LeaveGroupView(APIView):
    """Leaving one of your own groups."""

    @extend_schema(request=LeaveGroupSerializer, responses=AccountSerializer)
    def post(self, request: Request) -> Response:
        """Leave a group: from the next request on you lack its permissions.

        Not `Users`, and not a group that an identity provider gives you.
        """
        body = LeaveGroupSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        user, name = person(request), body.validated_data["group"]
        group = user.groups.filter(name=name).first()
        if group is None:
            problem = f"you are not in {name!r}"
            raise BadInput(f"group: {problem}.", fields={"group": problem})
        group_leave(user=user, group=group)
        return _account_response(User.objects.get(pk=user.pk))


def _account_response(user: User) -> Response:
    prefetch_related_objects([user], groups_by_name())
    return Response(AccountSerializer(user).data)
