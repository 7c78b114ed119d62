"""REST of the user's own preferences."""

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.api.permissions import person
from apps.accounts.models import User
from apps.accounts.services.preferences import PATTERN_LENGTH, PATTERNS, preferences_change
from apps.core.serializers import StrictSerializer


class PreferencesChangeSerializer(StrictSerializer):
    redacted_variables = serializers.ListField(
        # Bounded by the service, which accepts patterns that are stored already.
        child=serializers.CharField(),
        help_text="Patterns such as WANDB_*: values of such variables of your tasks are shown to "
        f"nobody. Up to {PATTERNS} of up to {PATTERN_LENGTH} characters; what is stored "
        "already may stay.",
    )


class PreferencesSerializer(serializers.Serializer[Any]):
    redacted_variables = serializers.ListField(child=serializers.CharField())
    always_redacted_variables = serializers.ListField(
        child=serializers.CharField(), help_text="Those that the installation hides for everybody."
    )


class PreferencesView(APIView):
    """Your own preferences."""

    @extend_schema(responses=PreferencesSerializer)
    def get(self, request: Request) -> Response:
        return Response(_preferences_response(person(request)))

    @extend_schema(request=PreferencesChangeSerializer, responses=PreferencesSerializer)
    def patch(self, request: Request) -> Response:
        body = PreferencesChangeSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        return Response(
            _preferences_response(preferences_change(user=person(request), **body.validated_data))
        )


def _preferences_response(user: User) -> dict[str, Any]:
    return {
        "redacted_variables": user.redacted_variables,
        "always_redacted_variables": settings.RPM_REDACTED_VARIABLES,
    }
