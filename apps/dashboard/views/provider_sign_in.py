"""Logging in with an identity provider, and the second factor after a password."""

from collections.abc import Iterator
from contextlib import contextmanager

from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.models import Login
from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.helpers import complete_social_login
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.base import ProviderException
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.sessions import LoginSession
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from requests import RequestException

from apps.accounts.identity.connection_tests import CONNECTION_TEST_S, is_under_test, refuse
from apps.accounts.identity.providers import (
    OidcAdapter,
    OidcProvider,
    SamlProvider,
    row_of,
    saml_addresses,
)
from apps.accounts.identity.saml import SamlResponse, own_metadata, saml_response_of
from apps.accounts.models import IdentityProvider, User
from apps.accounts.selectors import needs_second_factor
from apps.accounts.services.identity_log_in import assertion_use
from apps.accounts.services.throttling import provider_step_admit
from apps.core.errors import NotAllowed
from apps.core.origin import client_address
from apps.dashboard.middleware import MUST_ENROL

SECOND_FACTORS = [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN]
# An answer is kept between two requests: what is larger than any real one is not.
MOST_ANSWER = 300_000
_ANSWER = ("saml_acs_session", "saml-acs-session")


def sign_in_after_password(request: HttpRequest, user: User, *, next_url: str) -> HttpResponse:
    """Go on after a right password: to the second factor, or straight in."""
    record_authentication(
        request, user, method="password", username=user.username, reauthenticated=True
    )
    answer: HttpResponse = perform_login(request, Login(user=user, redirect_url=next_url))
    is_in = request.user.is_authenticated
    if is_in and needs_second_factor(user) and not is_mfa_enabled(user, SECOND_FACTORS):
        request.session[MUST_ENROL] = True
    return answer


def safe_next(request: HttpRequest, wanted: str) -> str:
    """Where the person wanted to go, when that is a page of this site."""
    hosts = {request.get_host()}
    if url_has_allowed_host_and_scheme(wanted, hosts, require_https=request.is_secure()):
        return wanted
    return "/"


# permission: anybody
@never_cache
@require_GET
def provider_start(request: HttpRequest, slug: str) -> HttpResponse:
    """Send the browser to the provider; only from our own pages, not from another site."""
    if request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
        return redirect("sign_in")
    provider_step_admit(client_address(request))
    provider = _provider(request, slug)
    if not request.user.is_authenticated:
        # Many never come back.
        request.session.set_expiry(CONNECTION_TEST_S)
    with _provider_errors(request, provider):
        answer: HttpResponse = provider.redirect(
            request, "login", next_url=safe_next(request, request.GET.get("next", ""))
        )
    return answer


# permission: anybody; state, code and tokens are checked
@never_cache
@require_GET
def oidc_callback(request: HttpRequest, slug: str) -> HttpResponse:
    """The browser comes back from an OpenID Connect provider with a code."""
    provider_step_admit(client_address(request))
    provider = _provider(request, slug)
    if not isinstance(provider, OidcProvider):
        raise Http404
    view = OAuth2CallbackView.adapter_view(OidcAdapter(request, slug))
    with _provider_errors(request, provider):
        answer: HttpResponse = view(request)
    return answer


# permission: anybody; only what the provider signed is kept, for the page after it
@csrf_exempt
@never_cache
@require_POST
def saml_acs(request: HttpRequest, slug: str) -> HttpResponse:
    """A SAML provider sends its answer: across sites, so without the cookie of the session."""
    provider_step_admit(client_address(request))
    sent = request.POST.get("SAMLResponse", "")
    if len(sent) > MOST_ANSWER:
        raise NotAllowed("This answer is larger than a provider sends.")
    # The session has the settings that an answer to a test is checked against.
    if not is_under_test(slug):
        row = row_of(_saml(request, slug).app)
        try:
            _read(request, row, sent)
        except NotAllowed as error:
            refuse(request, slug, error, {})
    answer = redirect("saml_finish_acs", organization_slug=slug)
    kept = LoginSession(request, *_ANSWER)
    kept.store["answer"] = sent
    kept.store.set_expiry(CONNECTION_TEST_S)
    kept.save(answer)
    return answer


# permission: anybody; signature, audience, time and request are checked
@never_cache
@require_GET
def saml_finish(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """Believe the answer that was kept, or refuse it."""
    provider_step_admit(client_address(request))
    provider = _saml(request, organization_slug)
    row = row_of(provider.app)
    try:
        answer = _read(request, row, _stored_answer(request))
        state = provider.unstash_redirect_state(request, answer.in_response_to)
        assertion_use(provider=row, assertion_id=answer.assertion_id, until=answer.until)
    except NotAllowed as error:
        refuse(request, row.slug, error, {})
    except PermissionDenied:
        words = f"{row.name} answers a request that this browser did not make. Sign in again."
        refuse(request, row.slug, NotAllowed(words), {})
    login = provider.sociallogin_from_response(request, answer.claims)
    login.state = state
    done: HttpResponse = complete_social_login(request, login)
    return done


# permission: anybody: certificates and addresses are public
@require_GET
def saml_metadata(request: HttpRequest, slug: str) -> HttpResponse:
    """What a SAML provider may be given about this installation."""
    row = row_of(_saml(request, slug).app)
    text = own_metadata(row, saml_addresses(request, row))
    return HttpResponse(text, content_type="application/samlmetadata+xml")


def _provider(request: HttpRequest, slug: str) -> OidcProvider | SamlProvider:
    try:
        found: OidcProvider | SamlProvider = get_adapter().get_provider(request, provider=slug)
    except SocialApp.DoesNotExist as error:
        raise Http404 from error
    return found


@contextmanager
def _provider_errors(request: HttpRequest, provider: OidcProvider | SamlProvider) -> Iterator[None]:
    """A provider that does not answer, or otherwise than it should, is a sentence and no fault."""
    try:
        yield
    except (RequestException, ProviderException) as error:
        row = row_of(provider.app)
        refuse(request, row.slug, NotAllowed(f"{row.name} cannot be reached: {error}"), {})


def _saml(request: HttpRequest, slug: str) -> SamlProvider:
    provider = _provider(request, slug)
    if not isinstance(provider, SamlProvider):
        raise Http404
    return provider


def _stored_answer(request: HttpRequest) -> str:
    kept = LoginSession(request, *_ANSWER)
    sent: str = kept.store.get("answer", "")
    kept.delete()
    if not sent:
        raise NotAllowed("The provider's answer did not arrive. Sign in again.")
    return sent


def _read(request: HttpRequest, row: IdentityProvider, sent: str) -> SamlResponse:
    return saml_response_of(
        row,
        saml_addresses(request, row),
        sent=sent,
        is_secure=request.is_secure(),
        host=request.get_host(),
    )
