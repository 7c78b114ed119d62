"""Connection tests of a provider before it is saved: its sealed settings are in the session.

While a test runs, answers for its address are shown to that administrator and sign nobody in. A
request of a test never becomes a log-in, even if the test is over before the answer comes.
"""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from allauth.core.exceptions import ImmediateHttpResponse
from django.core.cache import cache
from django.http import HttpRequest
from django.shortcuts import redirect

from apps.accounts.identity.claims import Claims, ProviderIdentity
from apps.accounts.models import IdentityProvider
from apps.accounts.selectors import is_admin
from apps.accounts.services.identity_log_in import log_in_refusal_note
from apps.core.errors import NotAllowed
from apps.core.keyring import CannotUnseal, SealContext, seal, unseal

_RUNNING = "identity.test.running"
_DRAFT = "identity.test.draft"
_OUTCOME = "identity.test.outcome"
# In what allauth keeps of a request to a provider.
CONNECTION_TEST = "connection_test"
# As long as allauth remembers a request; and as long as an administrator thinks about the outcome.
CONNECTION_TEST_S = 600
DRAFT_S = 3600
_DRAFT_FIELDS = tuple(
    field.attname
    for field in IdentityProvider._meta.concrete_fields
    if field.attname not in {"created_at", "updated_at"}
)


def connection_test_begin(
    request: HttpRequest, row: IdentityProvider, mapping: Sequence[tuple[str, str]]
) -> None:
    """Keep the settings until the provider has answered.

    Args:
        mapping: names of the provider's groups and of ours.
    """
    draft = {name: getattr(row, name) for name in _DRAFT_FIELDS}
    connection_test_discard(request)
    request.session[_DRAFT] = {
        "slug": row.slug,
        "token": secrets.token_urlsafe(16),
        "until": time.time() + DRAFT_S,
        "row": seal(
            json.dumps({"row": draft, "mapping": list(mapping)}),
            context=_context(request, _DRAFT),
        ),
    }
    request.session[_RUNNING] = time.time() + CONNECTION_TEST_S
    cache.set(_mark(row.slug), value=True, timeout=CONNECTION_TEST_S)


def is_under_test(slug: str) -> bool:
    """Whether a connection test of a provider with this id runs now.

    For answers that come across sites, without the cookie of the administrator who runs it.
    """
    return bool(cache.get(_mark(slug)))


def connection_test_discard(request: HttpRequest) -> None:
    """End the test that runs, if any."""
    for name in (_RUNNING, _DRAFT, _OUTCOME):
        request.session.pop(name, None)


def slug_under_test(request: HttpRequest | None) -> str:
    """The id of the provider under test; empty for none."""
    draft = _draft(request)
    if request is None or draft is None or request.session.get(_RUNNING, 0) < time.time():
        return ""
    return str(draft["slug"])


def connection_test_token(request: HttpRequest, slug: str) -> str:
    """The mark of requests to the provider that belong to the running test; empty without one."""
    draft = _draft(request)
    return str(draft["token"]) if draft is not None and slug_under_test(request) == slug else ""


def connection_test_check(request: HttpRequest, slug: str, state: Mapping[str, Any]) -> None:
    """Refuse an answer that belongs neither to a log-in nor to the test that runs.

    Raises:
        NotAllowed: its test is over, or a test began after the log-in did.
    """
    if state.get(CONNECTION_TEST, "") != connection_test_token(request, slug):
        error = NotAllowed(
            "This answer belongs to a test that is over, or came too late. Begin again."
        )
        log_in_refusal_note(slug=slug, why=error.detail)
        raise error


def provider_under_test(request: HttpRequest | None) -> IdentityProvider | None:
    """The settings under test."""
    slug = slug_under_test(request)
    return last_tested_provider(request, slug) if slug else None


def last_tested_provider(request: HttpRequest | None, slug: str) -> IdentityProvider | None:
    """The settings that were last tested under this id, for the form; None if none were."""
    draft = _draft(request)
    if draft is None or draft["slug"] != slug:
        return None
    plain = _open_sealed(request, draft["row"], _DRAFT)
    return IdentityProvider(**plain["row"]) if plain is not None else None


def connection_test_end(
    request: HttpRequest, *, claims: Claims, identity: ProviderIdentity | None, problem: str = ""
) -> None:
    """Keep the outcome for the page that shows it; nobody was signed in."""
    draft = _draft(request)
    request.session.pop(_RUNNING, None)
    plain = _open_sealed(request, draft["row"], _DRAFT) if draft is not None else None
    if draft is None or plain is None:
        return
    outcome = {
        "slug": draft["slug"],
        "name": plain["row"]["name"],
        "claims": json.loads(json.dumps(claims, default=str)),
        "identity": asdict(identity) if identity is not None else None,
        "mapping": plain["mapping"],
        "syncs_groups": plain["row"]["syncs_groups"],
        "problem": problem,
    }
    # As a page can hold it: half a character, which JSON allows, is no text.
    text = json.dumps(outcome, ensure_ascii=False).encode(errors="replace")
    request.session[_OUTCOME] = seal(text.decode(), context=_context(request, _OUTCOME))


def refuse(request: HttpRequest, slug: str, error: NotAllowed, claims: Claims) -> NoReturn:
    """Refuse the log-in: a connection test shows why and the claims, others see the sentence only.

    Raises:
        NotAllowed: the error.
        ImmediateHttpResponse: to the outcome of the test.
    """
    if slug_under_test(request) != slug:
        log_in_refusal_note(slug=slug, why=error.detail)
        raise error
    connection_test_end(request, claims=claims, identity=None, problem=error.detail)
    raise ImmediateHttpResponse(redirect("identity_test_outcome")) from error


def connection_test_outcome(request: HttpRequest) -> dict[str, Any] | None:
    """The outcome of the last test; None if there was none."""
    sealed = request.session.get(_OUTCOME)
    return _open_sealed(request, sealed, _OUTCOME) if sealed is not None else None


def _open_sealed(request: HttpRequest | None, sealed: str, kind: str) -> dict[str, Any] | None:
    """The unsealed value; None if its key was rotated and dropped, as if there was no test."""
    try:
        opened: dict[str, Any] = json.loads(unseal(sealed, context=_context(request, kind)))
    except CannotUnseal:
        return None
    return opened


def _context(request: HttpRequest | None, kind: str) -> SealContext:
    """The seal context of the administrator who tests; `kind` is the key in the session."""
    user = str(request.user.pk) if request is not None else ""
    return SealContext(kind, (user,))


def _mark(slug: str) -> str:
    return f"identity.test:{slug}"


def _draft(request: HttpRequest | None) -> dict[str, Any] | None:
    if request is None or not hasattr(request, "session"):
        return None
    draft: dict[str, Any] | None = request.session.get(_DRAFT)
    if draft is None or draft["until"] < time.time() or not is_admin(request.user):
        return None
    return draft
