"""django-allauth's providers, with the settings and checks of this project."""

import base64
import hashlib
import json
from typing import Any

import jwt
import structlog
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialApp, SocialToken
from allauth.socialaccount.providers.base import ProviderException
from allauth.socialaccount.providers.oauth2.client import OAuth2Client, OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from allauth.socialaccount.providers.saml.provider import SAMLProvider
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.crypto import get_random_string
from requests import RequestException, Response

from apps.accounts.identity.claims import Claims, ProviderIdentity, identity_from
from apps.accounts.identity.connection_tests import CONNECTION_TEST, connection_test_token, refuse
from apps.accounts.identity.saml import SamlAddresses, request_to
from apps.accounts.models import IdentityProvider, Pkce
from apps.core.errors import NotAllowed
from apps.core.outgoing_requests import address_problem

DISCOVERY = "/.well-known/openid-configuration"
# Signature algorithms that a provider may use: only those with a private key.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
_ENDPOINTS = {
    "authorization_endpoint": "authorization_url",
    "token_endpoint": "token_url",
    "userinfo_endpoint": "user_info_url",
    "revocation_endpoint": "revocation_url",
    "jwks_uri": "jwks_url",
}
# Keys are asked for at every log-in.
DISCOVERY_S = 300
_METHODS = "token_endpoint_auth_methods_supported"
# Seconds by which two clocks may differ.
LEEWAY_S = 30
# The most characters that are shown of a provider's own error text.
MOST_WORDS = 300

log = structlog.get_logger(__name__)


def row_of(app: SocialApp) -> IdentityProvider:
    """The row from which an allauth app was made."""
    row: IdentityProvider = app.rpm_row
    return row


class _ProviderMixin:
    """What both protocols share: the claims identify the user, and none is stored."""

    app: SocialApp
    request: HttpRequest
    identity: ProviderIdentity
    claims: Claims

    def extract_uid(self, data: Claims) -> str:
        self.claims = data
        try:
            self.identity = identity_from(row_of(self.app), data)
        except NotAllowed as error:
            refuse(self.request, self.app.provider_id, error, data)
        return self.identity.uid

    def extract_extra_data(self, _data: Claims) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        """By its own id: two rows may have the same client id."""
        return {"id": self.app.provider_id}

    def extract_common_fields(self, _data: Claims) -> dict[str, Any]:
        return {}

    def extract_email_addresses(self, _data: Claims) -> list[Any]:
        return []


class _Client(OAuth2Client):  # type: ignore[misc]  # allauth has no types
    """Asks the token endpoint; shows only the standard fields of an error response."""

    def get_access_token(
        self, code: str, pkce_code_verifier: str | None = None, **_: Any
    ) -> dict[str, Any]:
        sent = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.callback_url}
        if pkce_code_verifier:
            sent["code_verifier"] = pkce_code_verifier
        own = {"client_id": self.consumer_key, "client_secret": self.consumer_secret}
        auth = tuple(one.encode() for one in own.values()) if self.basic_auth else None
        if auth is None:
            sent |= {name: value for name, value in own.items() if value}
        with get_adapter().get_requests_session() as session:
            response = session.post(self.access_token_url, data=sent, auth=auth)
        payload = _object(response)
        if not response.ok or not isinstance(payload.get("access_token"), str):
            raise OAuth2Error(
                f"The token endpoint gave no access token: {_error_text(response, payload)}"
            )
        return payload


class OidcAdapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]  # allauth has no types
    """The exchange with an OpenID Connect provider."""

    client_class = _Client

    @property
    def openid_config(self) -> dict[str, Any]:
        """The provider's addresses: as they were typed, else from its discovery document."""
        if not hasattr(self, "_config"):
            self._config = self._load_config()
        return self._config

    def parse_token(self, data: dict[str, Any]) -> SocialToken:
        """The token serves one request and is revoked: its expiry does not matter."""
        return SocialToken(token=data["access_token"])

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any
    ) -> Any:
        """Claims of the identity token, and of the user-info endpoint if that is used."""
        given = kwargs["response"].get("id_token")
        if not isinstance(given, str) or not given:
            raise OAuth2Error("The provider sent no identity token: is the scope openid allowed?")
        row = row_of(app)
        claims = self._decode(row, given)
        if row.uses_user_info:
            payload = self._json(self.profile_url, {"Authorization": f"Bearer {token.token}"})
            if payload.get("sub") != claims["sub"]:
                raise OAuth2Error("The user-info endpoint answers for another user.")
            claims = _with_user_info(claims, payload)
        self._revoke_token(token.token)
        provider = self.get_provider()
        login = provider.sociallogin_from_response(request, claims)
        login.nonce = claims.get("nonce")
        return login

    def get_callback_url(self, request: HttpRequest, _app: SocialApp) -> str:
        return request.build_absolute_uri(reverse("oidc_callback", args=[self.provider_id]))

    def _load_config(self) -> dict[str, Any]:
        row = row_of(self.get_provider().app)
        config: dict[str, Any] = {}
        if row.discovery_url:
            config = self._discovery(row)
            begins = row.discovery_url.removesuffix(DISCOVERY)
            wanted = row.issuer or begins
            if str(config.get("issuer", "")).rstrip("/") != wanted.rstrip("/"):
                raise ProviderException(
                    f"The discovery address belongs to the issuer {config.get('issuer')!r}, and "
                    f"{wanted!r} is expected."
                )
        else:
            config["issuer"] = row.issuer
        for name, field in _ENDPOINTS.items():
            config[name] = str(getattr(row, field) or config.get(name) or "")
        if not isinstance(config.get(_METHODS), list):
            config[_METHODS] = []
        for name in ("authorization_endpoint", "token_endpoint"):
            problem = address_problem(config[name])
            if problem:
                raise ProviderException(f"The provider's {name} {problem}.")
        return config

    def _discovery(self, row: IdentityProvider) -> dict[str, Any]:
        """The discovery document; anybody can begin a log-in, so it is not asked for each time."""
        digest = hashlib.sha256(row.discovery_url.encode()).hexdigest()
        name = f"identity.discovery:{digest}"
        is_test = bool(connection_test_token(self.request, row.slug))
        found: dict[str, Any] | None = None if is_test else cache.get(name)
        if found is None:
            found = self._json(row.discovery_url)
            cache.set(name, found, timeout=DISCOVERY_S)
        return found

    def _decode(self, row: IdentityProvider, token: str) -> dict[str, Any]:
        """The claims of an identity token of this provider, valid now and issued for us."""
        try:
            key = self._key(token) if row.verifies_signature else ""
            claims: dict[str, Any] = jwt.decode(
                token,
                key=key,
                algorithms=ALGORITHMS if row.verifies_signature else None,
                audience=row.client_id,
                issuer=self.openid_config["issuer"],
                leeway=LEEWAY_S,
                options={
                    "require": ["iss", "sub", "aud", "exp", "iat"],
                    "verify_signature": row.verifies_signature,
                    "verify_exp": True,
                    "verify_aud": True,
                    "verify_iss": True,
                    "verify_iat": True,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError) as error:
            raise OAuth2Error(f"The identity token is not accepted: {error}") from error
        party = claims.get("azp")
        if party is not None and party != row.client_id:
            raise OAuth2Error("The identity token was made for another client.")
        return claims

    def _key(self, token: str) -> Any:
        header = jwt.get_unverified_header(token)
        address = self.openid_config["jwks_uri"]
        if not address:
            raise OAuth2Error("The provider names no JWKS endpoint: enter it.")
        keys = jwt.PyJWKSet.from_dict(self._json(address)).keys
        usable = [one for one in keys if one.public_key_use in {None, "sig"}]
        named = [one for one in usable if one.key_id == header.get("kid")]
        # Without a name a single key can be meant.
        found = named or (usable if "kid" not in header and len(usable) == 1 else [])
        if not found:
            raise OAuth2Error("The identity token is signed with a key that the provider has not.")
        return found[0].key

    def _json(self, address: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        with get_adapter().get_requests_session() as session:
            response = session.get(address, headers=headers)
        response.raise_for_status()
        return _object(response)

    def _revoke_token(self, token: str) -> None:
        """The access token is not needed any more; a provider that does not take it keeps it."""
        address = self.openid_config["revocation_endpoint"]
        app = self.get_provider().app
        if not address:
            return
        try:
            with get_adapter().get_requests_session() as session:
                data = {"token": token, "token_type_hint": "access_token"}
                if self.basic_auth:
                    session.post(address, data=data, auth=(app.client_id, app.secret))
                else:
                    own = {"client_id": app.client_id, "client_secret": app.secret}
                    session.post(address, data=data | own)
        except RequestException as error:
            log.warning("identity.token_kept", provider=self.provider_id, error=str(error))


def _with_user_info(claims: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
    """Merge both; a verified address of the token says nothing about another address."""
    if payload.get("email", claims.get("email")) != claims.get("email"):
        claims = {**claims, "email_verified": False}
    return claims | payload


class OidcProvider(_ProviderMixin, OpenIDConnectProvider):  # type: ignore[misc]  # allauth has no types
    """OpenID Connect with the settings of a row."""

    oauth2_adapter_class = OidcAdapter

    def get_scope(self) -> list[str]:
        row = row_of(self.app)
        return list(dict.fromkeys(["openid", *row.scopes.split(), *row.extra_scopes.split()]))

    def get_pkce_params(self) -> dict[str, str]:
        pkce = row_of(self.app).pkce
        if pkce == Pkce.NONE:
            return {}
        verifier = get_random_string(64)
        challenge = verifier
        if pkce == Pkce.S256:
            digest = hashlib.sha256(verifier.encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return {
            "code_verifier": verifier,
            "code_challenge": challenge,
            "code_challenge_method": str(pkce),
        }

    def redirect(self, request: HttpRequest, process: str, **kwargs: Any) -> HttpResponse:
        """Redirect to the provider, without the query parameters of the request."""
        nonce = get_random_string(32)
        kept = {
            "nonce": nonce,
            CONNECTION_TEST: connection_test_token(request, self.app.provider_id),
        }
        answer: HttpResponse = super().redirect(
            request, process, auth_params={"nonce": nonce}, **kept, **kwargs
        )
        return answer


class SamlProvider(_ProviderMixin, SAMLProvider):  # type: ignore[misc]  # allauth has no types
    """SAML with the settings of a row."""

    def redirect(
        self, request: HttpRequest, process: str, next_url: str | None = None, **_: Any
    ) -> HttpResponse:
        row = row_of(self.app)
        where, request_id = request_to(row, saml_addresses(request, row))
        kept = {CONNECTION_TEST: connection_test_token(request, row.slug)}
        self.stash_redirect_state(request, process, next_url, state_id=request_id, **kept)
        return HttpResponseRedirect(where)


def saml_addresses(request: HttpRequest, row: IdentityProvider) -> SamlAddresses:
    """The addresses of this installation, from the request."""
    return SamlAddresses(
        acs=request.build_absolute_uri(reverse("saml_acs", args=[row.slug])),
        metadata=request.build_absolute_uri(reverse("saml_metadata", args=[row.slug])),
    )


def _object(response: Response) -> dict[str, Any]:
    """The JSON object that a provider answers with.

    Raises:
        ProviderException: it answers with something else.
    """
    try:
        found = response.json()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProviderException(
            f"{response.url} answers with {response.status_code} and no JSON object."
        )
    return found


def _error_text(response: Response, payload: dict[str, Any]) -> str:
    """The error of the token endpoint; not the response itself, which may hold tokens."""
    words = [str(payload[name]) for name in ("error", "error_description") if payload.get(name)]
    # As bytes can hold it: JSON may hold half a character.
    said = ": ".join(words)[:MOST_WORDS].encode(errors="replace").decode()
    return said or f"it answers with {response.status_code}"


def claims_text(claims: Claims) -> str:
    """The claims as people read them."""
    return json.dumps(claims, indent=2, ensure_ascii=False, sort_keys=True, default=str)
