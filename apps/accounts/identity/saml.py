"""SAML: the provider's metadata, our own, and answers that are believed or refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree.ElementTree import ParseError

from django.utils import timezone
from lxml.etree import LxmlError
from onelogin.saml2.auth import OneLogin_Saml2_Auth
from onelogin.saml2.errors import OneLogin_Saml2_Error
from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser
from onelogin.saml2.response import OneLogin_Saml2_Response
from onelogin.saml2.settings import OneLogin_Saml2_Settings

from apps.accounts.models import IdentityProvider
from apps.core.errors import NotAllowed
from apps.core.keyring import unseal
from apps.core.outgoing import address_problem

POST = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
# The claim that stands for the subject of an assertion, which is no attribute.
SUBJECT = "NameID"
# How long an assertion without an end is remembered; longer than any request waits.
REMEMBERED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where this installation is, as the provider has to know it."""

    acs: str
    metadata: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer says, after everything about it was checked but whether it comes again."""

    claims: Mapping[str, Any]
    in_response_to: str
    assertion_id: str
    until: datetime


def metadata_problem(text: str) -> str:
    """What is wrong with a provider's metadata; empty for nothing."""
    if not text.strip():
        return "is missing: choose the XML file that the provider offers"
    try:
        found = _idp(text)
    except (LxmlError, ParseError, OneLogin_Saml2_Error, ValueError, TypeError):
        return "is no metadata of a SAML provider: it must be the XML file as it was downloaded"
    if not found.get("entityId"):
        return "names no provider (EntityDescriptor with an IDPSSODescriptor)"
    if "x509cert" not in found and not found.get("x509certMulti", {}).get("signing"):
        return "holds no certificate for signatures (KeyDescriptor)"
    address = found.get("singleSignOnService", {}).get("url", "")
    if not address:
        return "names no address to log in at with the binding HTTP-Redirect"
    problem = address_problem(address)
    return f"names an address that {problem}: {address}" if problem else ""


def issuer_of(text: str) -> str:
    """Which provider a metadata that is right speaks of: its entity id."""
    return str(_idp(text).get("entityId", ""))


def settings_of(provider: IdentityProvider, addresses: Addresses) -> OneLogin_Saml2_Settings:
    """Settings of python3-saml, made anew for each request: the row is the only truth."""
    own: dict[str, Any] = {
        "entityId": provider.entity_id or addresses.metadata,
        "assertionConsumerService": {"url": addresses.acs, "binding": POST},
    }
    if provider.certificate:
        own["x509cert"] = provider.certificate
        own["privateKey"] = unseal(provider.private_key_sealed)
    return OneLogin_Saml2_Settings(
        {
            "strict": True,
            "sp": own,
            "idp": _idp(provider.metadata),
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
    )


def request_to(provider: IdentityProvider, addresses: Addresses) -> tuple[str, str]:
    """Where to send the person, and the id of the request, which the answer must name."""
    auth = OneLogin_Saml2_Auth({}, old_settings=settings_of(provider, addresses))
    where: str = auth.login(return_to=addresses.acs)
    request_id: str = auth.get_last_request_id()
    return where, request_id


def own_metadata(provider: IdentityProvider, addresses: Addresses) -> str:
    """What the provider may be given about this installation, as XML."""
    made = settings_of(provider, addresses).get_sp_metadata()
    return made.decode() if isinstance(made, bytes) else str(made)


def answer_of(
    provider: IdentityProvider, addresses: Addresses, *, sent: str, is_secure: bool, host: str
) -> Answer:
    """What came back, if it is signed by the provider, meant for us, of now, and asked for.

    Args:
        sent: the field SAMLResponse of the form.
        host: of the request that brought it, with its port.

    Raises:
        NotAllowed: with what python3-saml says about it.
    """
    settings = settings_of(provider, addresses)
    place = {"https": "on" if is_secure else "off", "http_host": host}
    place["script_name"] = "/" + addresses.acs.split("://", 1)[-1].partition("/")[2]
    try:
        answer = OneLogin_Saml2_Response(settings, sent)
        if not answer.is_valid({**place, "get_data": {}, "post_data": {}}):
            raise _refused(provider, str(answer.get_error()))
        return _checked(provider, settings, answer)
    except (LxmlError, OneLogin_Saml2_Error, ValueError, TypeError) as error:
        raise _refused(provider, str(error)) from error


def _checked(provider: IdentityProvider, settings: Any, answer: Any) -> Answer:
    """What python3-saml leaves open: it must name whom it is for and what it answers."""
    if settings.get_sp_data()["entityId"] not in answer.get_audiences():
        raise _refused(provider, "it does not name this installation as its audience")
    in_response_to = answer.get_in_response_to()
    if not in_response_to:
        raise _refused(provider, "nobody here asked for it: begin at the sign-in page")
    claims: dict[str, Any] = dict(answer.get_attributes())
    subject = answer.get_nameid()
    if subject:
        claims[SUBJECT] = str(subject)
    ends = answer.get_assertion_not_on_or_after()
    until = datetime.fromtimestamp(ends, UTC) if ends else timezone.now() + REMEMBERED
    return Answer(claims, str(in_response_to), str(answer.get_assertion_id()), until)


def _idp(text: str) -> dict[str, Any]:
    found: dict[str, Any] = OneLogin_Saml2_IdPMetadataParser.parse(text.strip().encode())
    idp: dict[str, Any] = found.get("idp", {})
    # Nobody is logged out over SAML here.
    idp.pop("singleLogoutService", None)
    return idp


def _refused(provider: IdentityProvider, why: str) -> NotAllowed:
    return NotAllowed(f"{provider.name} sent an answer that is not accepted: {why.strip(' .')}.")
