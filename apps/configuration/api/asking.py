"""What views of the configuration ask of a request."""

from typing import Any

from rest_framework.request import Request
from rest_framework.serializers import BaseSerializer

from apps.accounts.selectors import is_admin
from apps.core.errors import NotAllowed


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
