"""Your account: profile, e-mail address, password and sessions; and joining by a link."""

from collections.abc import Callable

from django import forms
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from apps.accounts.models import User
from apps.accounts.selectors import sessions_of
from apps.accounts.services.groups import group_leave
from apps.accounts.services.invitations import invitation_accept, invitation_by_token
from apps.accounts.services.preferences import preferences_change
from apps.accounts.services.profile import password_change, profile_change
from apps.accounts.services.sessions import session_end, sessions_end_others
from apps.core.errors import RpmError
from apps.dashboard.access import person
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_people import (
    AddressForm,
    JoinForm,
    PasswordForm,
    ProfileForm,
    patterns_of,
)
from apps.dashboard.toasts import say
from apps.dashboard.views.provider_sign_in import sign_in_after_password

BACKEND = "apps.accounts.backends.PersonBackend"


# permission: every signed-in user, for themselves
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
@sensitive_post_parameters("current_password", "new_password")
def account_page(request: HttpRequest) -> HttpResponse:
    """Several forms; which one was sent says its button."""
    user = person(request)
    sent = request.POST.get("form", "")
    given = request.POST if request.method == "POST" else None
    profile = ProfileForm(given if sent == "profile" else None, user=user)
    address = AddressForm(given if sent == "address" else None, initial={"email": user.email})
    password = PasswordForm(given if sent == "password" else None)
    steps: dict[str, tuple[forms.Form, Callable[[], str]]] = {
        "profile": (profile, lambda: _save_profile(user, profile)),
        "address": (address, lambda: _save_address(user, address)),
        "password": (password, lambda: _save_password(request, user, password)),
    }
    if sent in steps and _save(request, *steps[sent]):
        return redirect("account")
    if sent in {"session", "sessions"}:
        say(request, _end_sessions(request, user))
        return redirect("account")
    if sent == "leave":
        say(request, _leave_group(user, request.POST.get("group", "")))
        return redirect("account")
    context = {
        "profile": profile,
        "address": address,
        "password": password,
        "has_password": user.has_usable_password(),
        "groups": user.groups.order_by("name"),
        "sessions": sessions_of(user, this=request.session.session_key),
    }
    return render(request, "settings/account.html", context, status=400 if sent else 200)


# permission: everyone with a link that works
@require_http_methods(["GET", "POST"])
@never_cache
@sensitive_post_parameters("password")
def join(request: HttpRequest, token: str) -> HttpResponse:
    """Set a password and a user name, and sign in.

    The address holds the token: the site's Referrer-Policy sends it to no other site.
    """
    invitation = invitation_by_token(token)
    if invitation is None:
        return render(request, "pages/join_gone.html", status=410)
    user = invitation.user
    form = JoinForm(
        request.POST if request.method == "POST" else None,
        asks_name=invitation.asks_name,
        asks_who=user.is_pending,
        initial={"first_name": user.first_name, "last_name": user.last_name},
    )
    if request.method == "POST" and form.is_valid():
        try:
            joined = invitation_accept(token=token, **form.cleaned_data)
        except RpmError as error:
            add_errors(form, error)
        else:
            # As by the form to sign in: a link asks for no less than a password does.
            joined.backend = BACKEND
            return sign_in_after_password(request, joined, next_url=reverse("overview"))
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    context = {"form": form, "invitation": invitation, "user_name": user.username}
    return render(request, "pages/join.html", context, status=status)


def _leave_group(user: User, pk: str) -> str:
    """Leave one of the user's groups; the sentence that says so, or why not."""
    is_id = pk.isascii() and pk.isdigit() and len(pk) < 19
    group = user.groups.filter(pk=int(pk)).first() if is_id else None
    if group is None:
        return "You are not in that group."
    try:
        group_leave(user=user, group=group)
    except RpmError as error:
        return error.detail
    return f"You have left group {group.name}."


def _end_sessions(request: HttpRequest, user: User) -> str:
    """Sign one browser out, or all but this one; the sentence that says so."""
    if request.POST["form"] == "sessions":
        # Here it goes on under the key that it has from now on.
        changed = sessions_end_others(user=user, except_key=request.session.session_key or "")
        update_session_auth_hash(request, changed)
        return "Every other session of yours has ended."
    session_end(user=user, digest=request.POST.get("session", ""))
    return "That session has ended."


def _save(request: HttpRequest, form: forms.Form, save: Callable[[], str]) -> bool:
    if form.is_valid():
        try:
            # What one form changes is saved whole or not at all.
            with transaction.atomic():
                words = save()
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, words)
            return True
    focus_first_error(form)
    return False


def _save_profile(user: User, form: ProfileForm) -> str:
    given = dict(form.cleaned_data)
    patterns = patterns_of(given.pop("redacted_variables"))
    profile_change(user=user, changes=given)
    preferences_change(user=user, redacted_variables=patterns)
    return "Your profile is saved."


def _save_address(user: User, form: AddressForm) -> str:
    given = form.cleaned_data
    profile_change(user=user, changes={"email": given["email"]}, password=given["current_password"])
    return "Your e-mail address is saved."


def _save_password(request: HttpRequest, user: User, form: PasswordForm) -> str:
    changed = password_change(user=user, **form.cleaned_data)
    update_session_auth_hash(request, changed)
    return "Your password is changed. Every other session of yours has ended."
