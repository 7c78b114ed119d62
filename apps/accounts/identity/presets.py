"""Defaults for well-known providers, with which a form begins."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.accounts.models import Protocol

_SOAP = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims"
_MICROSOFT = "http://schemas.microsoft.com"


@dataclass(frozen=True, slots=True)
class ProviderPreset:
    """A kind of provider: its protocol, where its settings are found, and field defaults."""

    key: str
    title: str
    protocol: Protocol
    hint: str
    values: Mapping[str, str | bool] = field(default_factory=dict)


_OIDC_CLAIMS = {
    "claim_id": "sub",
    "claim_email": "email",
    "claim_name": "name",
    "claim_given_name": "given_name",
    "claim_family_name": "family_name",
    "claim_picture": "picture",
    "claim_groups": "groups",
}
_SAML_CLAIMS = {
    "claim_id": "NameID",
    "claim_email": "email",
    "claim_name": "name",
    "claim_given_name": "firstName",
    "claim_family_name": "lastName",
    "claim_picture": "",
    "claim_groups": "groups",
}
_AD_CLAIMS = {
    "claim_id": "NameID",
    "claim_email": f"{_SOAP}/emailaddress",
    "claim_name": f"{_SOAP}/name",
    "claim_given_name": f"{_SOAP}/givenname",
    "claim_family_name": f"{_SOAP}/surname",
    "claim_picture": "",
    "claim_groups": f"{_MICROSOFT}/ws/2008/06/identity/claims/groups",
}


def _oidc(key: str, title: str, hint: str, **values: str | bool) -> ProviderPreset:
    return ProviderPreset(key, title, Protocol.OIDC, hint, _OIDC_CLAIMS | values)


def _saml(
    key: str, title: str, hint: str, claims: Mapping[str, str] = _SAML_CLAIMS
) -> ProviderPreset:
    return ProviderPreset(key, title, Protocol.SAML, hint, dict(claims))


_ALL = (
    _oidc(
        "keycloak",
        "Keycloak",
        (
            "Discovery: https://HOST/realms/REALM/.well-known/openid-configuration. For groups add "
            "the mapper “Group Membership” with the claim groups to the client."
        ),
    ),
    _oidc(
        "google",
        "Google",
        "Make an OAuth client of the type “Web application”. Google sends no groups.",
        discovery_url="https://accounts.google.com/.well-known/openid-configuration",
        claim_groups="",
    ),
    _oidc(
        "microsoft",
        "Microsoft Entra and AD",
        (
            "Discovery: https://login.microsoftonline.com/TENANT/v2.0/.well-known/"
            "openid-configuration, with your own tenant. Groups come as ids, once the app "
            "registration adds the groups claim. Entra verifies no addresses: see “count as "
            "verified”."
        ),
        claim_id="oid",
    ),
    _oidc(
        "okta",
        "Okta",
        (
            "Discovery: https://ORG.okta.com/.well-known/openid-configuration. Groups need a "
            "groups claim filter and the scope groups."
        ),
        extra_scopes="groups",
    ),
    _oidc(
        "auth0",
        "Auth0",
        (
            "Discovery: https://TENANT.auth0.com/.well-known/openid-configuration. An action adds "
            "groups, under a claim whose name is an address."
        ),
        claim_groups="https://rpm.example.com/groups",
    ),
    _oidc(
        "cognito",
        "AWS Cognito",
        (
            "Discovery: https://cognito-idp.REGION.amazonaws.com/POOL/.well-known/"
            "openid-configuration."
        ),
        claim_groups="cognito:groups",
    ),
    _oidc(
        "ping",
        "Ping",
        "Discovery: https://auth.pingone.com/ENVIRONMENT/as/.well-known/openid-configuration.",
    ),
    _oidc("oidc", "Another with OpenID Connect", "Whatever speaks OpenID Connect."),
    _saml("duo", "Duo", "Applications, Protect, “Generic SAML Service Provider”."),
    _saml("google-saml", "Google (SAML)", "Apps, Web and mobile apps, “Add custom SAML app”."),
    _saml("jumpcloud", "JumpCloud", "SSO Applications, “Custom Application”, Manage SSO."),
    _saml(
        "microsoft-saml",
        "Microsoft AD (SAML)",
        (
            "Enterprise applications, “Create your own”, Single sign-on, SAML; or AD FS, “Relying "
            "party trust”."
        ),
        _AD_CLAIMS,
    ),
    _saml("saml", "Another with SAML", "Whatever speaks SAML 2.0."),
)
PRESETS: dict[str, ProviderPreset] = {one.key: one for one in _ALL}
