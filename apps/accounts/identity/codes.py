"""Forms that take codes of second factors, stricter than those of django-allauth.

A code of an app is accepted for as long as clocks may differ, and counts once in all of that time;
the secret of an app that is being set up is sealed while it waits in the session.
"""

import hashlib
from typing import Any

from allauth.core import context
from allauth.core.internal.cryptokit import normalize_user_code
from allauth.mfa import app_settings
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.totp.internal.auth import SECRET_SESSION_KEY, generate_totp_secret
from django import forms
from django.contrib.auth.base_user import AbstractBaseUser

from apps.accounts.services.throttling import counters
from apps.core.keyring import CannotUnseal, SealContext, seal, unseal


class _OneTimeCodeMixin:
    """Refuses a code of an app that was accepted before."""

    user: AbstractBaseUser
    authenticator: Authenticator

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _focus(self)

    def clean_code(self) -> str:
        code: str = super().clean_code()  # type: ignore[misc]  # of allauth's form
        if self.authenticator.type == Authenticator.Type.TOTP:
            count_once(self.user, code)
        return code


class CodeForm(_OneTimeCodeMixin, AuthenticateForm):  # type: ignore[misc]  # allauth has no types
    """Asks for a code at a log-in."""


class CodeAgainForm(_OneTimeCodeMixin, ReauthenticateForm):  # type: ignore[misc]  # allauth has no types
    """Asks for a code before users change how they sign in."""


class AppForm(ActivateTOTPForm):  # type: ignore[misc]  # allauth has no types
    """Asks for the first code of an app, which cannot be used for a log-in afterwards."""

    def __init__(self, *args: Any, user: AbstractBaseUser, **kwargs: Any) -> None:
        # Not allauth's, which would write the secret into the session as it is.
        forms.Form.__init__(self, *args, **kwargs)
        self.user = user
        if self.is_bound:
            _focus(self)
        self.secret = _stored_secret(user) if self.is_bound else ""
        if not self.secret:
            self.secret = generate_totp_secret()
            sealed = seal(self.secret, context=_context(user))
            context.request.session[SECRET_SESSION_KEY] = sealed

    def clean_code(self) -> str:
        code: str = super().clean_code()
        count_once(self.user, code)
        return code


def count_once(user: AbstractBaseUser, code: str) -> None:
    """Note the code as used, in all processes, until no clock would accept it any more.

    Raises:
        ValidationError: it was used before.
    """
    steps = 2 * app_settings.TOTP_TOLERANCE + 1
    digest = hashlib.blake2b(normalize_user_code(code).encode(), digest_size=16).hexdigest()
    lifetime_s = float(app_settings.TOTP_PERIOD * steps)
    if counters.add(f"totp:{user.pk}:{digest}", keep_s=lifetime_s) > 1:
        raise get_adapter().validation_error("incorrect_code")


def _focus(form: Any) -> None:
    form.fields["code"].widget.attrs["autofocus"] = True


def _stored_secret(user: AbstractBaseUser) -> str:
    """The secret that the last page showed; empty where there is none, or it cannot be unsealed."""
    sealed = context.request.session.get(SECRET_SESSION_KEY)
    if not sealed:
        return ""
    try:
        return unseal(sealed, context=_context(user))
    except CannotUnseal:
        return ""


def _context(user: AbstractBaseUser) -> SealContext:
    return SealContext("accounts.second_factor.setup", (str(user.pk),))
