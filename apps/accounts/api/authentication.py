"""HTTP Basic with the key and secret of a credential."""

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from apps.accounts.models import User
from apps.accounts.services.credentials import credential_user


class CredentialAuthentication(BaseAuthentication):
    """`Authorization: Basic base64(key:secret)`."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        header = request.headers.get("Authorization", "")
        if not header.lower().startswith("basic "):
            return None
        user = credential_user(header)
        if user is None:
            raise AuthenticationFailed("Key or secret is wrong, expired or revoked.")
        return user, None

    def authenticate_header(self, _request: Request) -> str:
        return 'Basic realm="RPM"'


class CredentialScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # untyped base
    """How the OpenAPI file names it."""

    target_class = "apps.accounts.api.authentication.CredentialAuthentication"
    name = "credential"

    def get_security_definition(self, _auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "basic", "description": "Key and secret of a credential."}
