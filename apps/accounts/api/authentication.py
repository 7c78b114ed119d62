"""HTTP Basic with the key and secret of a credential, or a token that was made with them."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from apps.accounts.models import User
from apps.accounts.services.access import CredentialAccess, WrongSecret, access_by_header
from apps.accounts.services.throttling import address_admit
from apps.core.origin import client_address


class CredentialAuthentication(BaseAuthentication):
    """`Authorization: Basic base64(key:secret)` or `Authorization: Bearer <token>`."""

    def authenticate(self, request: Request) -> tuple[User, CredentialAccess] | None:
        address = client_address(request._request)
        address_admit(address)
        try:
            access = access_by_header(request.headers.get("Authorization", ""), address=address)
        except WrongSecret as error:
            raise AuthenticationFailed(error.detail) from error
        return (access.user, access) if access is not None else None

    def authenticate_header(self, _request: Request) -> str:
        return 'Basic realm="RPM"'


class CredentialScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # untyped base
    """The names of both in the OpenAPI file."""

    target_class = "apps.accounts.api.authentication.CredentialAuthentication"
    match_subclasses = True
    name = ["credential", "token"]

    def get_security_requirement(self, _auto_schema: object) -> list[dict[str, list[Any]]]:
        return [{name: []} for name in self.name]

    def get_security_definition(self, _auto_schema: object) -> list[dict[str, Any]]:
        return [
            {"type": "http", "scheme": "basic", "description": "Key and secret of a credential."},
            {"type": "http", "scheme": "bearer", "description": "A token of `POST token/`."},
        ]
