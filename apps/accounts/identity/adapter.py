"""Adapters of django-allauth: its apps are our rows, and our services decide who may sign in."""

from typing import Any, NoReturn

import requests
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.internal.flows.login import get_authentication_records
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp
from allauth.socialaccount.providers import registry
from allauth.socialaccount.providers.base.constants import AuthError
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.accounts.identity.connection_tests import (
    CONNECTION_TEST,
    connection_test_check,
    connection_test_end,
    provider_under_test,
    refuse,
)
from apps.accounts.models import IdentityProvider, Protocol, User
from apps.accounts.services.factor_seals import factor_seal, factor_unseal
from apps.accounts.services.identity_log_in import identity_accept
from apps.core.errors import NotAllowed
from apps.core.keyring import CannotUnseal, unseal
from apps.core.origin import client_address
from apps.core.outgoing_requests import outgoing_session

# Names of allauth's two providers, which this app replaces.
_NAMES = {Protocol.OIDC: "openid_connect", Protocol.SAML: "saml"}
BY_PASSWORD = "apps.accounts.backends.PersonBackend"  # noqa: S105  # no password
BY_PROVIDER = "apps.accounts.backends.ExternalBackend"


class LogInAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """No sign-up, no mail, no messages of allauth's own."""

    def is_open_for_signup(self, _request: HttpRequest) -> bool:
        return False

    def add_message(self, *_args: Any, **_kwargs: Any) -> None:
        """Adds none: the page after the log-in shows that the user is signed in."""

    def send_mail(self, *_args: Any, **_kwargs: Any) -> None:
        """Mails are `accounts`' own."""

    def login(self, request: HttpRequest, user: User) -> None:
        """Begin the session, with the backend that matches how the user authenticated."""
        methods = {one["method"] for one in get_authentication_records(request, user)}
        backend = BY_PROVIDER if "socialaccount" in methods else BY_PASSWORD
        login(request, user, backend=backend)
        # On the way to a provider it lasts minutes only.
        request.session.set_expiry(None)

    def get_client_ip(self, request: HttpRequest) -> str:
        """The client address, as everywhere here; unknown addresses count as one."""
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
        under_test = provider_under_test(request)
        rows = list(IdentityProvider.objects.filter(is_active=True))
        if under_test is not None:
            rows = [under_test, *(row for row in rows if row.slug != under_test.slug)]
        return [
            _app(row, opens=provider is not None)
            for row in rows
            if provider in {None, row.slug} and client_id in {None, row.slug, row.client_id}
        ]

    def get_provider(
        self, request: HttpRequest, provider: str, client_id: str | None = None
    ) -> Any:
        """Find it by the id of a row, which may have the name of a protocol."""
        app = self.get_app(request, provider=provider, client_id=client_id)
        return registry.get_class(app.provider)(request, app=app)

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Sign in the user whom our services accept, or show the outcome of a connection test.

        Raises:
            NotAllowed: with the sentence for the person.
        """
        provider = sociallogin.provider
        connection_test_check(request, provider.app.provider_id, sociallogin.state)
        _check_nonce(request, sociallogin)
        if sociallogin.state.get(CONNECTION_TEST):
            connection_test_end(request, claims=provider.claims, identity=provider.identity)
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
        """Show every failure as a sentence on a page of this project."""
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
    """Seals the secrets of second factors for their person, like all other secrets."""

    def encrypt(self, text: str) -> str:
        return factor_seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        return factor_unseal(encrypted_text)

    def send_notification_mail(self, *_args: Any, **_kwargs: Any) -> None:
        """Mails are `accounts`' own."""


def _app(row: IdentityProvider, *, opens: bool) -> SocialApp:
    """An app that is not stored; it carries the row from which it was made.

    Args:
        opens: with its secret, for a log-in. A list goes without: one that cannot be read is no
            reason not to show the others.
    """
    is_oidc = row.protocol == Protocol.OIDC
    secret = ""
    if opens and row.client_secret_sealed:
        try:
            secret = unseal(row.client_secret_sealed, context=row.client_secret_context)
        except CannotUnseal as error:
            raise NotAllowed(f"The settings of {row.name} cannot be used. {error}") from error
    app = SocialApp(
        provider=_NAMES[Protocol(row.protocol)],
        provider_id=row.slug,
        name=row.name,
        client_id=row.client_id if is_oidc else row.slug,
        secret=secret,
        settings={"server_url": row.discovery_url},
    )
    app.rpm_row = row
    return app


def _check_nonce(request: HttpRequest, sociallogin: Any) -> None:
    """An identity token answers the request of this browser, and no other."""
    wanted = sociallogin.state.get("nonce")
    if wanted is not None and wanted != getattr(sociallogin, "nonce", None):
        error = NotAllowed("The identity token answers another request. Sign in again.")
        provider = sociallogin.provider
        refuse(request, provider.app.provider_id, error, provider.claims)
