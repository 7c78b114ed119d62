"""One's credentials: make, name and revoke them."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from apps.accounts.models import Credential, User
from apps.accounts.selectors import is_admin
from apps.accounts.services.credentials import (
    credential_change,
    credential_create,
    credential_revoke,
)
from apps.core.errors import RpmError
from apps.dashboard.access import person
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_credentials import CredentialForm, CredentialLabelForm
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.selectors.credentials import live_credentials, new_secret
from apps.dashboard.toasts import say


# permission: every signed-in user, for their own credentials
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def credential_list(request: HttpRequest) -> HttpResponse:
    """One's keys; a new one shows its secret once, in the answer to the form."""
    user = person(request)
    form = CredentialForm(request.POST or None)
    made = None
    if request.method == "POST" and form.is_valid():
        label = form.cleaned_data["label"]
        made = new_secret(request, *credential_create(user=user, label=label, **form.granted()))
        form = CredentialForm()
    focus_first_error(form)
    status = 400 if request.method == "POST" and made is None else 200
    context = {"credentials": live_credentials(user), "form": form, "made": made}
    return render(request, "pages/credentials.html", context, status=status)


# permission: every signed-in user, for their own credentials; administrators for all
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def credential_label(request: HttpRequest, pk: int) -> HttpResponse:
    """Another label."""
    user = person(request)
    credential = _credential_or_404(user, pk)
    form = CredentialLabelForm(request.POST or None, initial={"label": credential.label})
    if request.method == "POST" and form.is_valid():
        try:
            credential_change(credential=credential, actor=user, label=form.cleaned_data["label"])
        except RpmError as error:
            add_errors(form, error)
        else:
            return redirect_to(request, _back(credential))
    context = {"credential": credential, "form": form, "back": _back(credential)}
    status = 400 if request.method == "POST" else 200
    return page_or_dialog(request, "settings/credential_label.html", context, status=status)


# permission: every signed-in user, for their own credentials; administrators for all
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def credential_remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Say what ends with it; then refuse the credential from the next request on."""
    user = person(request)
    credential = _credential_or_404(user, pk)
    back = _back(credential)
    if request.method == "POST":
        credential_revoke(credential=credential, actor=user, is_admin=is_admin(user))
        say(request, f"Credential “{credential.label or credential.key}” is revoked.")
        return redirect_to(request, back)
    context = {"credential": credential, "back": back}
    return page_or_dialog(request, "settings/credential_revoke.html", context)


def _credential_or_404(user: User, pk: int) -> Credential:
    own = Credential.objects.all() if is_admin(user) else Credential.objects.filter(user=user)
    known = own.filter(revoked_at__isnull=True).select_related("user")
    return get_object_or_404(known, pk=pk)


def _back(credential: Credential) -> str:
    if credential.user.is_service:
        return reverse("service_account", args=[credential.user_id])
    return reverse("credential_list")
