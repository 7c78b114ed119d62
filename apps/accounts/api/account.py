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
from apps.accounts.services.profile import profile_change
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


def _account_response(user: User) -> Response:
    prefetch_related_objects([user], groups_by_name())
    return Response(AccountSerializer(user).data)
