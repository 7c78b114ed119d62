"""REST of short-lived tokens."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.api.authentication import CredentialAuthentication
from apps.accounts.models import Scope
from apps.accounts.services.access import CredentialAccess, token_make
from apps.core.errors import NotAllowed
from apps.core.serializers import StrictSerializer

# A list of mappings, though drf-spectacular types it as names.
_BASIC: Any = [{"credential": []}]


class TokenCreateSerializer(StrictSerializer):
    scope = serializers.ChoiceField(
        Scope.choices,
        required=False,
        help_text="What the token may be used for; default: all that the credential may. "
        "Never more than that.",
    )


class TokenSerializer(serializers.Serializer[Any]):
    token = serializers.CharField(help_text="Sent as `Authorization: Bearer <token>`.")
    scope = serializers.ChoiceField(Scope.choices)
    expires_in_s = serializers.IntegerField()


class TokenView(APIView):
    """Tokens, for programs that should not hold the secret."""

    authentication_classes = (CredentialAuthentication,)
    scope_to_write = Scope.READ

    @extend_schema(
        request=TokenCreateSerializer,
        responses={201: TokenSerializer},
        auth=_BASIC,
    )
    def post(self, request: Request) -> Response:
        """A token for the credential of this request; it expires, and ends with the credential."""
        access = request.auth
        if not isinstance(access, CredentialAccess) or access.until is not None:
            raise NotAllowed("Tokens are made with key and secret, as HTTP Basic.")
        body = TokenCreateSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        requested = body.validated_data.get("scope")
        token = token_make(access=access, scope=Scope(requested) if requested else None)
        payload = {"token": token.text, "scope": token.scope, "expires_in_s": token.expires_in_s}
        return Response(payload, status=201, headers={"Cache-Control": "no-store"})
