"""What views of the configuration ask of a request."""

from typing import Any

from rest_framework.request import Request
from rest_framework.serializers import BaseSerializer

from apps.accounts.selectors import is_admin, tenants_administered_by
from apps.core.errors import NotAllowed
from apps.policies.models import Policy
from apps.policies.tenancy import policies_changeable_by


def checked(
    serializer: type[BaseSerializer[Any]], request: Request, *, is_partial: bool = False
) -> dict[str, Any]:
    """The body, or the errors of its fields."""
    body = serializer(data=request.data, partial=is_partial)
    body.is_valid(raise_exception=True)
    values: dict[str, Any] = body.validated_data
    return values


def admins_only(request: Request) -> None:
    """Refuse who sees the thing and may not change it."""
    if not is_admin(request.user):
        raise NotAllowed("This is for administrators.")


def policy_makers_only(request: Request) -> None:
    """Administrators, and those of a tenant, below whose top it comes to stand."""
    if not is_admin(request.user) and not tenants_administered_by(request.user):
        raise NotAllowed("This is for administrators.")


def changeable_only(request: Request, policy: Policy) -> None:
    """Administrators, and those of the tenant where the policy stands below its top."""
    if not policies_changeable_by(request.user).filter(pk=policy.pk).exists():
        raise NotAllowed("This is for administrators.")
