"""Signing in and out, and the first administrator."""

from django.contrib.auth import login, logout
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from apps.accounts.models import User
from apps.accounts.selectors import log_in_rules, sign_in_providers
from apps.accounts.services.people import setup_complete
from apps.core.errors import RpmError, TooMany
from apps.core.notifications import notify_now
from apps.dashboard.forms import SetUpForm, SignInForm, add_errors, focus_first_error
from apps.dashboard.views.provider_sign_in import safe_next, sign_in_after_password

BACKEND = "apps.accounts.backends.PersonBackend"


# permission: anybody
@never_cache
@sensitive_post_parameters("password")
def sign_in(request: HttpRequest) -> HttpResponse:
    """Identity providers, name and password; an empty installation is set up first."""
    if not User.objects.filter(is_service=False).exists():
        return redirect("set_up")
    form = SignInForm(request, request.POST or None)
    status, retry_after_s = 400 if request.method == "POST" else 200, 0
    try:
        if request.method == "POST" and form.is_valid():
            wanted = safe_next(request, request.POST.get("next", ""))
            return sign_in_after_password(request, form.get_user(), next_url=wanted)
    except TooMany as error:
        form.add_error(None, error.detail)
        status, retry_after_s = error.status, error.retry_after_s
    if request.method == "POST":
        form.focus_password()
    context = {
        "form": form,
        "next": request.GET.get("next", ""),
        "providers": sign_in_providers(),
        "shows_password": log_in_rules().allows_passwords
        or request.method == "POST"
        or "password" in request.GET,
    }
    response = render(request, "pages/sign_in.html", context, status=status)
    if retry_after_s:
        response["Retry-After"] = str(retry_after_s)
    return response


# permission: every signed-in user
@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session, and the live sockets of this person."""
    user = request.user.pk
    logout(request)
    if user is not None:
        notify_now(topics=[f"user.{user}"])
    return redirect("sign_in")


# permission: the owner of the one-time token of an empty installation
@never_cache
@sensitive_post_parameters("token", "password")
def set_up(request: HttpRequest) -> HttpResponse:
    """Make the first administrator and sign them in."""
    if User.objects.filter(is_service=False).exists():
        return redirect_to_login("/")
    form = SetUpForm(request.POST or None, initial={"token": request.GET.get("token", "")})
    if request.method == "POST" and form.is_valid():
        try:
            user = setup_complete(**form.cleaned_data)
        except RpmError as error:
            add_errors(form, error)
        else:
            login(request, user, backend=BACKEND)
            return redirect("overview")
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    return render(request, "pages/set_up.html", {"form": form}, status=status)
