"""Addresses of second factors: django-allauth's views, our templates, and no other page of it.

The names are those that allauth looks up by itself.
"""

from allauth.account.views import reauthenticate
from allauth.mfa.base.views import authenticate, index
from allauth.mfa.base.views import reauthenticate as mfa_reauthenticate
from allauth.mfa.recovery_codes.views import generate_recovery_codes, view_recovery_codes
from allauth.mfa.totp.views import activate_totp, deactivate_totp
from allauth.mfa.webauthn.views import (
    add_webauthn,
    list_webauthn,
    reauthenticate_webauthn,
    remove_webauthn,
)
from django.urls import URLPattern, path
from django.views.generic import RedirectView

_IN = "settings/second-factor/"

urlpatterns: list[URLPattern] = [
    path("sign-in/second-factor/", authenticate, name="mfa_authenticate"),
    # Where allauth sends a user who has to start again.
    path("sign-in/again/", RedirectView.as_view(pattern_name="sign_in"), name="account_login"),
    path(_IN, index, name="mfa_index"),
    path(f"{_IN}password/", reauthenticate, name="account_reauthenticate"),
    path(f"{_IN}code/", mfa_reauthenticate, name="mfa_reauthenticate"),
    path(f"{_IN}app/add/", activate_totp, name="mfa_activate_totp"),
    path(f"{_IN}app/remove/", deactivate_totp, name="mfa_deactivate_totp"),
    path(f"{_IN}codes/", view_recovery_codes, name="mfa_view_recovery_codes"),
    path(f"{_IN}codes/new/", generate_recovery_codes, name="mfa_generate_recovery_codes"),
    path(f"{_IN}keys/", list_webauthn, name="mfa_list_webauthn"),
    path(f"{_IN}keys/add/", add_webauthn, name="mfa_add_webauthn"),
    path(f"{_IN}keys/code/", reauthenticate_webauthn, name="mfa_reauthenticate_webauthn"),
    path(f"{_IN}keys/<int:pk>/remove/", remove_webauthn, name="mfa_remove_webauthn"),
]
