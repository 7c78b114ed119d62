"""What django-allauth asks: its apps are our rows, and who comes in is decided by our services."""

from typing import Any, NoReturn

import requests
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.flows.login import get_authentication_records
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp
from allauth.socialaccount.providers.base.constants import AuthError
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.accounts.identity.trials import refuse, running_row, running_slug, trial_end
from apps.accounts.models import IdentityProvider, Protocol, User
from apps.accounts.services.identity_log_in import identity_accept, log_in_refused
from apps.core.errors import NotAllowed
from apps.core.keyring import seal, unseal
from apps.core.origin import client_address
from apps.core.outgoing import outgoing_session

# Names of allauth's two providers, which ours replace.
_NAMES = {Protocol.OIDC: "openid_connect", Protocol.SAML: "saml"}
BY_PASSWORD = "apps.accounts.backends.PersonBackend"  # noqa: S105  # no password
BY_PROVIDER = "apps.accounts.backends.ExternalBackend"


class LogInAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """No sign-up, no mail, no messages of allauth's own."""

    def is_open_for_signup(self, _request: HttpRequest) -> bool:
        return False

    def add_message(self, *_args: Any, **_kwargs: Any) -> None:
        """Whoever is signed in sees it."""

    def send_mail(self, *_args: Any, **_kwargs: Any) -> None:
        """Mails are `accounts`' own."""

    def login(self, request: HttpRequest, user: User) -> None:
        """Begin the session; how somebody proved who they are says by which way it is kept."""
        methods = {one["method"] for one in get_authentication_records(request, user)}
        backend = BY_PROVIDER if "socialaccount" in methods else BY_PASSWORD
        login(request, user, backend=backend)

    def get_client_ip(self, request: HttpRequest) -> str:
        """The address that counts, as everywhere here; one that nobody knows counts as one."""
        return client_address(request) or "local"

    def respond_user_inactive(self, _request: HttpRequest, _user: User) -> HttpResponse:
        raise NotAllowed("This account is deactivated. An administrator can activate it again.")


class ProviderAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Our rows as allauth's apps."""

    def list_apps(
        self,
        request: HttpRequest,
        provider: str | None = None,
        client_id: str | None = None,
    ) -> list[SocialApp]:
        tried = running_row(request)
        rows = list(IdentityProvider.objects.filter(is_active=True))
        if tried is not None:
            rows = [tried, *(row for row in rows if row.slug != tried.slug)]
        return [
            _app(row)
            for row in rows
            if provider in {None, row.slug, _NAMES[Protocol(row.protocol)]}
            and client_id in {None, row.slug, row.client_id}
        ]

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Let in whom our services let in, or show an administrator's test what came back.

        Raises:
            NotAllowed: with the sentence for the person.
        """
        provider = sociallogin.provider
        _check_nonce(sociallogin)
        if running_slug(request) == provider.app.provider_id:
            trial_end(request, claims=provider.claims, identity=provider.identity)
            raise ImmediateHttpResponse(redirect("identity_test_outcome"))
        row: IdentityProvider = provider.app.rpm_row
        user = identity_accept(provider=row, identity=provider.identity)
        sociallogin.user = user
        sociallogin.account = SocialAccount.objects.get(
            provider=row.slug, uid=provider.identity.uid
        )

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: Any = None,
        exception: Exception | None = None,
        **_: Any,
    ) -> NoReturn:
        """Every failure is a sentence on a page of ours."""
        name = str(provider)
        why = f"{exception}" if exception else "it did not say why, or you began elsewhere"
        words = f"You did not log in with {name}: {why.strip('. ')}. Begin again."
        if error == AuthError.CANCELLED:
            words = f"You did not log in with {name}: it was cancelled there."
        refuse(request, provider.app.provider_id, NotAllowed(words), {})

    def is_open_for_signup(self, _request: HttpRequest, _sociallogin: Any) -> bool:
        return False

    def get_requests_session(self) -> requests.Session:
        return outgoing_session()

    def send_notification_mail(self, *_args: Any, **_kwargs: Any) -> None:
        """Mails are `accounts`' own."""


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # allauth has no types
    """Secrets of second factors are sealed as all others are."""

    def encrypt(self, text: str) -> str:
        return seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        return unseal(encrypted_text)

    def send_notification_mail(self, *_args: Any, **_kwargs: Any) -> None:
        """Mails are `accounts`' own."""


def _app(row: IdentityProvider) -> SocialApp:
    """An app that is nowhere stored; it carries the row it was made from."""
    is_oidc = row.protocol == Protocol.OIDC
    app = SocialApp(
        provider=_NAMES[Protocol(row.protocol)],
        provider_id=row.slug,
        name=row.name,
        client_id=row.client_id if is_oidc else row.slug,
        secret=unseal(row.client_secret_sealed) if row.client_secret_sealed else "",
        settings={"server_url": row.discovery_url},
    )
    app.rpm_row = row
    return app


def _check_nonce(sociallogin: Any) -> None:
    """An identity token answers the request of this browser, and no other."""
    wanted = sociallogin.state.get("nonce")
    if wanted is not None and wanted != getattr(sociallogin, "nonce", None):
        error = NotAllowed("The identity token answers another request. Sign in again.")
        log_in_refused(slug=sociallogin.provider.app.provider_id, why=error.detail)
        raise error
