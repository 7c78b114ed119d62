"""REST of how people log in, for administrators."""

from typing import Any

from django.contrib.auth.models import Group
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.api.permissions import IsAdmin, person
from apps.accounts.models import User
from apps.accounts.selectors import log_in_rules
from apps.accounts.services.identity import log_in_rules_change, rules_facts
from apps.core.serializers import StrictSerializer


class LogInRulesSerializer(serializers.Serializer[Any]):
    """How people may log in; `break_glass` is empty where nobody is chosen."""

    allows_passwords = serializers.BooleanField()
    break_glass = serializers.CharField()
    requires_second_factor = serializers.BooleanField()
    second_factor_groups = serializers.ListField(child=serializers.CharField())


class LogInRulesChangeSerializer(StrictSerializer):
    """Fields that are left out stay as they are."""

    allows_passwords = serializers.BooleanField(
        required=False,
        help_text="Off: only with an identity provider, and `break_glass` with a password.",
    )
    break_glass = serializers.SlugRelatedField[User](
        slug_field="username",
        queryset=User.objects.filter(is_service=False),
        required=False,
        allow_null=True,
        help_text="User name of an administrator with a password; null: nobody.",
    )
    requires_second_factor = serializers.BooleanField(
        required=False, help_text="Of everybody who logs in with a password."
    )
    second_factor_groups = serializers.SlugRelatedField[Group](
        slug_field="name",
        queryset=Group.objects.order_by("name"),
        many=True,
        required=False,
        help_text="Names of groups whose members need a second factor anyway.",
    )


class LogInRulesView(APIView):
    """Passwords and second factors; for administrators."""

    permission_classes = (IsAuthenticated, IsAdmin)

    @extend_schema(responses=LogInRulesSerializer)
    def get(self, request: Request) -> Response:  # noqa: ARG002  # DRF passes it
        """How people may log in."""
        return Response(rules_facts(log_in_rules()))

    @extend_schema(request=LogInRulesChangeSerializer, responses=LogInRulesSerializer)
    def patch(self, request: Request) -> Response:
        """Change the fields that are sent; they apply from the next log-in on."""
        body = LogInRulesChangeSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        rules = log_in_rules()
        now: dict[str, Any] = {
            "allows_passwords": rules.allows_passwords,
            "break_glass": rules.break_glass,
            "requires_second_factor": rules.requires_second_factor,
            "second_factor_groups": list(rules.second_factor_groups.all()),
        }
        changed = log_in_rules_change(actor=person(request), **(now | body.validated_data))
        return Response(rules_facts(changed))
