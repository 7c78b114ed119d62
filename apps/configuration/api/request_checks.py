"""Checks of requests in views of the configuration."""

from typing import Any

from rest_framework.request import Request
from rest_framework.serializers import BaseSerializer

from apps.access.selectors import policies_changeable_by
from apps.accounts.selectors import is_admin, tenants_administered_by
from apps.core.errors import NotAllowed
from apps.policies.models import Policy


def validated_body(
    serializer: type[BaseSerializer[Any]], request: Request, *, is_partial: bool = False
) -> dict[str, Any]:
    """The body, or the errors of its fields."""
    body = serializer(data=request.data, partial=is_partial)
    body.is_valid(raise_exception=True)
    values: dict[str, Any] = body.validated_data
    return values


def require_admin(request: Request) -> None:
    """Refuse users who see the object and may not change it."""
    if not is_admin(request.user):
        raise NotAllowed("This is for administrators.")


def require_policy_maker(request: Request) -> None:
    """Require an administrator, or one of the tenant below whose top the policy will be."""
    if not is_admin(request.user) and not tenants_administered_by(request.user):
        raise NotAllowed("This is for administrators.")


def require_changeable(request: Request, policy: Policy) -> None:
    """Require an administrator, or one of the tenant below whose top the policy is."""
    if not policies_changeable_by(request.user).filter(pk=policy.pk).exists():
        raise NotAllowed("This is for administrators.")
