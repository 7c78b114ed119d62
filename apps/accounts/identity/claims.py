"""The claims of a user, read by the names in the provider's settings."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from apps.accounts.models import IdentityProvider
from apps.core.errors import NotAllowed

# As long as a stored link holds it.
UID_LENGTH = 191
GROUPS = 2000
_TRUE = frozenset({"true", "1", "yes"})
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
# With this claim Microsoft's SAML says, in place of the groups, where to ask for them.
_GROUPS_LINK = "http://schemas.microsoft.com/claims/groups.link"

Claims = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProviderIdentity:
    """A user at a provider; `groups` are the provider's names."""

    uid: str
    email: str = ""
    is_email_verified: bool = False
    name: str = ""
    given_name: str = ""
    family_name: str = ""
    picture: str = ""
    user_name: str = ""
    groups: tuple[str, ...] = ()


def identity_from(provider: IdentityProvider, claims: Claims) -> ProviderIdentity:
    """The user whom the claims identify.

    Raises:
        NotAllowed: there is no id to recognise the user by; or the groups are incomplete.
    """
    uid = _text(claims, provider.claim_id)
    if not uid or len(uid) > UID_LENGTH:
        raise NotAllowed(
            f"{provider.name} sent no usable id in the claim {provider.claim_id!r}. An "
            "administrator can see what comes back with “Test connection”."
        )
    email = _email(_text(claims, provider.claim_email))
    verified = _is_true(claims.get("email_verified"))
    # It is about the claim `email`; another one may be what people call themselves.
    vouched = verified and provider.claim_email == "email"
    return ProviderIdentity(
        uid=uid,
        email=email,
        is_email_verified=bool(email) and (provider.trusts_email or vouched),
        name=_text(claims, provider.claim_name),
        given_name=_text(claims, provider.claim_given_name),
        family_name=_text(claims, provider.claim_family_name),
        picture=_text(claims, provider.claim_picture),
        user_name=_text(claims, "preferred_username"),
        groups=_groups(provider, claims),
    )


def claim_value(claims: Claims, name: str) -> Any:
    """The claim of this name; else, if it has dots, the nested value."""
    if not name:
        return None
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _groups(provider: IdentityProvider, claims: Claims) -> tuple[str, ...]:
    value = claim_value(claims, provider.claim_groups)
    values = value if isinstance(value, list | tuple) else [] if value is None else [value]
    found = tuple(dict.fromkeys(str(one) for one in values if str(one)))
    if not provider.syncs_groups:
        return found[:GROUPS]
    if _are_elsewhere(provider, claims, is_empty=not found):
        raise NotAllowed(
            f"{provider.name} did not list your groups, because you are in too many. An "
            "administrator can let it send only those that are assigned to the application."
        )
    if len(found) > GROUPS:
        raise NotAllowed(
            f"{provider.name} says that you are in {len(found)} groups, and at most {GROUPS} are "
            "read. An administrator can let it send fewer."
        )
    return found


def _are_elsewhere(provider: IdentityProvider, claims: Claims, *, is_empty: bool) -> bool:
    """Whether Microsoft says that there are too many groups to list; the claims have none then."""
    named = claims.get("_claim_names")
    if isinstance(named, Mapping) and provider.claim_groups in named:
        return True
    return is_empty and (_GROUPS_LINK in claims or _is_true(claims.get("hasgroups")))


def _text(claims: Claims, name: str) -> str:
    value = _first(claim_value(claims, name))
    if isinstance(value, str | int) and not isinstance(value, bool):
        text = str(value).strip()
        # No database holds these; without them two people could be one.
        return "" if _UNSTORABLE.search(text) else text
    return ""


def _is_true(value: Any) -> bool:
    return str(_first(value)).lower() in _TRUE


def _first(value: Any) -> Any:
    """SAML sends lists of everything."""
    if isinstance(value, list | tuple):
        return value[0] if value else None
    return value if not isinstance(value, Mapping) else None


def _email(text: str) -> str:
    # Compared without case, a database may take an i without its dot for an i.
    if not text.isascii():
        return ""
    try:
        validate_email(text)
    except ValidationError:
        return ""
    return text
