"""Trying a provider before it is saved: its settings, sealed, in the session of who tries.

While a test runs, answers for its address are shown to that administrator and let nobody in. What
was asked for as a test is never a log-in, also when the test is over before the answer comes.
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

from apps.accounts.identity.claims import Claims, Identity
from apps.accounts.models import IdentityProvider
from apps.accounts.selectors import is_admin
from apps.accounts.services.identity_log_in import log_in_refused
from apps.core.errors import NotAllowed
from apps.core.keyring import CannotUnseal, SealContext, seal, unseal

_RUNNING = "identity.test.running"
_DRAFT = "identity.test.draft"
_OUTCOME = "identity.test.outcome"
# In what allauth keeps of a request to a provider.
TRIAL = "trial"
# As long as allauth remembers what was asked for; and as long as somebody thinks about the outcome.
LASTS_S = 600
DRAFT_LASTS_S = 3600
_KEPT = tuple(
    field.attname
    for field in IdentityProvider._meta.concrete_fields
    if field.attname not in {"created_at", "updated_at"}
)


def trial_begin(
    request: HttpRequest, row: IdentityProvider, mapping: Sequence[tuple[str, str]]
) -> None:
    """Keep the settings until the provider has answered.

    Args:
        mapping: names of the provider's groups and of ours.
    """
    kept = {name: getattr(row, name) for name in _KEPT}
    trial_forget(request)
    request.session[_DRAFT] = {
        "slug": row.slug,
        "token": secrets.token_urlsafe(16),
        "until": time.time() + DRAFT_LASTS_S,
        "row": seal(
            json.dumps({"row": kept, "mapping": list(mapping)}),
            context=_context(request, _DRAFT),
        ),
    }
    request.session[_RUNNING] = time.time() + LASTS_S
    cache.set(_mark(row.slug), value=True, timeout=LASTS_S)


def is_tried(slug: str) -> bool:
    """Whether somebody tries a provider under this id now.

    For answers that come across sites, without the cookie of who tries it.
    """
    return bool(cache.get(_mark(slug)))


def trial_forget(request: HttpRequest) -> None:
    """Nothing is tried any more."""
    for name in (_RUNNING, _DRAFT, _OUTCOME):
        request.session.pop(name, None)


def running_slug(request: HttpRequest | None) -> str:
    """The id of what is being tried now; empty for nothing."""
    kept = _draft(request)
    if request is None or kept is None or request.session.get(_RUNNING, 0) < time.time():
        return ""
    return str(kept["slug"])


def running_token(request: HttpRequest, slug: str) -> str:
    """What marks a request to the provider as part of the test that runs; empty without one."""
    kept = _draft(request)
    return str(kept["token"]) if kept is not None and running_slug(request) == slug else ""


def trial_check(request: HttpRequest, slug: str, state: Mapping[str, Any]) -> None:
    """An answer counts only as what it was asked for: as a log-in, or for the test that runs.

    Raises:
        NotAllowed: its test is over, or a test began after the log-in did.
    """
    if state.get(TRIAL, "") != running_token(request, slug):
        error = NotAllowed(
            "This answer belongs to a test that is over, or came too late. Begin again."
        )
        log_in_refused(slug=slug, why=error.detail)
        raise error


def running_row(request: HttpRequest | None) -> IdentityProvider | None:
    """The settings that are being tried now."""
    slug = running_slug(request)
    return tried_row(request, slug) if slug else None


def tried_row(request: HttpRequest | None, slug: str) -> IdentityProvider | None:
    """The settings that were last tried under this id, for the form; None where none were."""
    kept = _draft(request)
    if kept is None or kept["slug"] != slug:
        return None
    plain = _opened(request, kept["row"], _DRAFT)
    return IdentityProvider(**plain["row"]) if plain is not None else None


def trial_end(
    request: HttpRequest, *, claims: Claims, identity: Identity | None, problem: str = ""
) -> None:
    """Keep what came back for the page that shows it; nobody was let in."""
    kept = _draft(request)
    request.session.pop(_RUNNING, None)
    plain = _opened(request, kept["row"], _DRAFT) if kept is not None else None
    if kept is None or plain is None:
        return
    outcome = {
        "slug": kept["slug"],
        "name": plain["row"]["name"],
        "claims": json.loads(json.dumps(claims, default=str)),
        "identity": asdict(identity) if identity is not None else None,
        "mapping": plain["mapping"],
        "syncs_groups": plain["row"]["syncs_groups"],
        "problem": problem,
    }
    # As a page can hold it: half a sign, which JSON allows, is no text.
    text = json.dumps(outcome, ensure_ascii=False).encode(errors="replace")
    request.session[_OUTCOME] = seal(text.decode(), context=_context(request, _OUTCOME))


def refuse(request: HttpRequest, slug: str, error: NotAllowed, claims: Claims) -> NoReturn:
    """Let nobody in: whoever tries the provider sees why with what came back, others the sentence.

    Raises:
        NotAllowed: the error.
        ImmediateHttpResponse: to the outcome of the trial.
    """
    if running_slug(request) != slug:
        log_in_refused(slug=slug, why=error.detail)
        raise error
    trial_end(request, claims=claims, identity=None, problem=error.detail)
    raise ImmediateHttpResponse(redirect("identity_test_outcome")) from error


def trial_outcome(request: HttpRequest) -> dict[str, Any] | None:
    """What the last test brought; None where there was none."""
    sealed = request.session.get(_OUTCOME)
    return _opened(request, sealed, _OUTCOME) if sealed is not None else None


def _opened(request: HttpRequest | None, sealed: str, kind: str) -> dict[str, Any] | None:
    """What was sealed; None where keys were rotated and dropped since, as if nothing was tried."""
    try:
        opened: dict[str, Any] = json.loads(unseal(sealed, context=_context(request, kind)))
    except CannotUnseal:
        return None
    return opened


def _context(request: HttpRequest | None, kind: str) -> SealContext:
    """Of the administrator who tries it; `kind` is the key in the session."""
    user = str(request.user.pk) if request is not None else ""
    return SealContext(kind, (user,))


def _mark(slug: str) -> str:
    return f"identity.test:{slug}"


def _draft(request: HttpRequest | None) -> dict[str, Any] | None:
    if request is None or not hasattr(request, "session"):
        return None
    kept: dict[str, Any] | None = request.session.get(_DRAFT)
    if kept is None or kept["until"] < time.time() or not is_admin(request.user):
        return None
    return kept
