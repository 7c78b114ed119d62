"""SAML: the provider's metadata, our own, and the checks of its answers."""

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree.ElementTree import ParseError

import xmlsec
from cryptography.x509 import load_der_x509_certificate
from django.utils import timezone
from lxml.etree import LxmlError
from onelogin.saml2.auth import OneLogin_Saml2_Auth
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Constants
from onelogin.saml2.errors import OneLogin_Saml2_Error, OneLogin_Saml2_ValidationError
from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser
from onelogin.saml2.response import OneLogin_Saml2_Response
from onelogin.saml2.settings import OneLogin_Saml2_Settings

from apps.accounts.models import IdentityProvider
from apps.core.errors import NotAllowed
from apps.core.keyring import CannotUnseal, unseal
from apps.core.outgoing_requests import address_problem

POST = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
# The claim for the subject of an assertion, which is no attribute.
SUBJECT = "NameID"
TRANSIENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"
_IN_RESPONSE_TO = (
    "/saml:Subject/saml:SubjectConfirmation/saml:SubjectConfirmationData/@InResponseTo"
)
# How long an assertion without an end is remembered; longer than any request waits.
REMEMBERED = timedelta(days=1)
# The errors of python3-saml and its libraries for invalid XML.
_UNREADABLE = (
    *(LxmlError, ParseError, xmlsec.Error, OneLogin_Saml2_Error, OneLogin_Saml2_ValidationError),
    *(ValueError, TypeError, AttributeError, LookupError),
)


@dataclass(frozen=True, slots=True)
class SamlAddresses:
    """The addresses of this installation, as the provider has to know them."""

    acs: str
    metadata: str


@dataclass(frozen=True, slots=True)
class SamlResponse:
    """The content of an answer, checked in every way except for replay."""

    claims: Mapping[str, Any]
    in_response_to: str
    assertion_id: str
    until: datetime


def metadata_problem(text: str) -> str:
    """What is wrong with a provider's metadata; empty if nothing is."""
    if not text.strip():
        return "is missing: choose the XML file that the provider offers"
    try:
        found = _idp(text)
    except _UNREADABLE:
        return "is no metadata of a SAML provider: it must be the XML file as it was downloaded"
    if not found.get("entityId"):
        return "names no provider (EntityDescriptor with an IDPSSODescriptor)"
    certificates = found.get("x509certMulti", {}).get("signing") or [found.get("x509cert", "")]
    if not any(certificates):
        return "holds no certificate for signatures (KeyDescriptor)"
    if not all(map(_is_certificate, certificates)):
        return "holds a certificate for signatures that is none (X509Certificate)"
    address = found.get("singleSignOnService", {}).get("url", "")
    if not address:
        return "names no address to log in at with the binding HTTP-Redirect"
    problem = address_problem(address) or _usable_problem(text, address)
    return f"names an address that {problem}: {address}" if problem else ""


def entity_id_problem(text: str) -> str:
    """What is wrong with the id of this installation at a provider; empty if nothing is."""
    if re.search(r"[\s<>&\"]", text):
        return 'must have no spaces and none of < > & ": write one such as https://rpm.example.com'
    return ""


def issuer_of(text: str) -> str:
    """The entity id of the provider in valid metadata."""
    return str(_idp(text).get("entityId", ""))


def settings_of(provider: IdentityProvider, addresses: SamlAddresses) -> OneLogin_Saml2_Settings:
    """Settings of python3-saml, built for each request: the row is the only truth.

    Raises:
        NotAllowed: with what is wrong with them.
    """
    own: dict[str, Any] = {
        "entityId": provider.entity_id or addresses.metadata,
        "assertionConsumerService": {"url": addresses.acs, "binding": POST},
    }
    if provider.certificate:
        own["x509cert"] = provider.certificate
        own["privateKey"] = _private_key(provider)
    values = {
        "strict": True,
        "sp": own,
        "security": {
            "authnRequestsSigned": provider.signs_requests,
            "wantAssertionsSigned": provider.requires_signed_assertions,
            "requestedAuthnContext": False,
            "rejectDeprecatedAlgorithm": True,
            "signatureAlgorithm": RSA_SHA256,
            "digestAlgorithm": SHA256,
            "wantNameId": False,
            "wantAttributeStatement": False,
            "allowRepeatAttributeName": True,
            # Machines in a company's network have names without dots.
            "allowSingleLabelDomains": True,
        },
    }
    try:
        return OneLogin_Saml2_Settings({**values, "idp": _idp(provider.metadata)})
    except _UNREADABLE as error:
        raise NotAllowed(f"The settings of {provider.name} cannot be used: {error}.") from error


def request_to(provider: IdentityProvider, addresses: SamlAddresses) -> tuple[str, str]:
    """The address to redirect to, and the id of the request, which the answer must name."""
    auth = OneLogin_Saml2_Auth({}, old_settings=settings_of(provider, addresses))
    where: str = auth.login(return_to=addresses.acs)
    request_id: str = auth.get_last_request_id()
    return where, request_id


def own_metadata(provider: IdentityProvider, addresses: SamlAddresses) -> str:
    """The metadata of this installation for the provider, as XML."""
    made = settings_of(provider, addresses).get_sp_metadata()
    return made.decode() if isinstance(made, bytes) else str(made)


def saml_response_of(
    provider: IdentityProvider, addresses: SamlAddresses, *, sent: str, is_secure: bool, host: str
) -> SamlResponse:
    """The answer, if the provider signed it, it is for us, valid now, and was requested.

    Args:
        sent: the field SAMLResponse of the form.
        host: of the request that brought it, with its port.

    Raises:
        NotAllowed: with what python3-saml says about it.
    """
    request_data = {"https": "on" if is_secure else "off", "http_host": host}
    request_data["script_name"] = "/" + addresses.acs.split("://", 1)[-1].partition("/")[2]
    try:
        settings = settings_of(provider, addresses)
        answer = OneLogin_Saml2_Response(settings, sent)
        if not answer.is_valid({**request_data, "get_data": {}, "post_data": {}}):
            raise _refusal(provider, str(answer.get_error()))
        return _checked_response(provider, settings, answer)
    except _UNREADABLE as error:
        raise _refusal(provider, str(error)) from error


def _checked_response(provider: IdentityProvider, settings: Any, answer: Any) -> SamlResponse:
    """Check what python3-saml does not: the answer must name its audience and its request."""
    if settings.get_sp_data()["entityId"] not in answer.get_audiences():
        raise _refusal(provider, "it does not name this installation as its audience")
    in_response_to = answer.get_in_response_to()
    if not in_response_to:
        raise _refusal(provider, "nobody here asked for it: begin at the sign-in page")
    if not _is_bound(answer, str(in_response_to)):
        raise _refusal(provider, "its assertion does not name the request (InResponseTo)")
    claims: dict[str, Any] = dict(answer.get_attributes())
    subject = answer.get_nameid()
    if subject:
        claims[SUBJECT] = str(subject)
    if provider.claim_id == SUBJECT and answer.get_nameid_format() == TRANSIENT:
        raise _refusal(
            provider,
            "its NameID is transient, so another one each time: let it send a persistent one, or "
            "take an attribute as the claim of the id",
        )
    ends = answer.get_assertion_not_on_or_after()
    until = datetime.fromtimestamp(ends, UTC) if ends else timezone.now() + REMEMBERED
    return SamlResponse(claims, str(in_response_to), str(answer.get_assertion_id()), until)


def _is_bound(answer: Any, request_id: str) -> bool:
    """Whether the signed part names the request: the answer, else the assertion by itself.

    An attacker could put an assertion that names none into an answer to their own request.
    """
    if f"{{{Constants.NS_SAMLP}}}Response" in answer.process_signed_elements():
        return True
    # Only the signed assertion counts: anybody can write around it.
    return request_id in answer._query_assertion(_IN_RESPONSE_TO)


def _is_certificate(text: str) -> bool:
    try:
        load_der_x509_certificate(b64decode(text, validate=True))
    except ValueError:
        return False
    return True


def _private_key(provider: IdentityProvider) -> str:
    try:
        return unseal(provider.private_key_sealed, context=provider.private_key_context)
    except CannotUnseal as error:
        raise NotAllowed(f"The settings of {provider.name} cannot be used. {error}") from error


def _usable_problem(text: str, address: str) -> str:
    """What python3-saml would say only at the first log-in, which is too late."""
    if not address.isascii():
        return "cannot be used: write names outside ASCII as xn--..."
    anywhere = SamlAddresses("https://rpm.example.com/acs", "https://rpm.example.com/metadata")
    try:
        settings_of(IdentityProvider(metadata=text), anywhere)
    except NotAllowed as error:
        return f"cannot be used ({error.detail.removesuffix('.')})"
    return ""


def _idp(text: str) -> dict[str, Any]:
    found: dict[str, Any] = OneLogin_Saml2_IdPMetadataParser.parse(text.strip().encode())
    idp: dict[str, Any] = found.get("idp", {})
    # Nobody is logged out over SAML here.
    idp.pop("singleLogoutService", None)
    return idp


def _refusal(provider: IdentityProvider, why: str) -> NotAllowed:
    return NotAllowed(f"{provider.name} sent an answer that is not accepted: {why.strip(' .')}.")
