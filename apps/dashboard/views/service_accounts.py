"""Service accounts for administrators: their groups, credentials and impersonation."""

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from apps.accounts.models import User
from apps.accounts.selectors import service_accounts_visible_to
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.service_accounts import (
    NewServiceAccount,
    service_account_change,
    service_account_create,
    service_account_remove,
)
from apps.core.errors import RpmError
from apps.dashboard.access import require_administrator
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_credentials import (
    CredentialForm,
    ServiceAccountForm,
    ServiceAccountNewForm,
)
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.selectors.credentials import (
    NewSecret,
    accounts_page,
    live_credentials,
    new_secret,
    task_counts_of,
)
from apps.dashboard.toasts import say

MOST_CHARS = 150


# permission: administrators
@require_GET
@login_required
@never_cache
def service_account_list(request: HttpRequest) -> HttpResponse:
    """Service accounts by name."""
    actor = require_administrator(request)
    q, group, after = (request.GET.get(name, "")[:MOST_CHARS] for name in ("q", "group", "after"))
    context = {
        "page": accounts_page(actor, q=q, group=group, after=after),
        "q": q,
        "group": group,
        "groups": Group.objects.order_by("name").values_list("name", flat=True),
    }
    return render(request, "settings/service_accounts.html", context)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def service_account_new(request: HttpRequest) -> HttpResponse:
    """A new account; the answer shows the secret of its first credential once."""
    actor = require_administrator(request)
    form = ServiceAccountNewForm(request.POST or None)
    made = _create(form, actor) if request.method == "POST" else None
    if made is not None:
        shown = new_secret(request, made.credential, made.secret)
        return _detail(request, actor, made.account, made=shown)
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    return render(request, "settings/service_account_new.html", {"form": form}, status=status)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def service_account_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One account; a new credential shows its secret once, in the answer to the form."""
    actor = require_administrator(request)
    account = get_object_or_404(service_accounts_visible_to(actor), pk=pk)
    form = CredentialForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        label = form.cleaned_data["label"]
        credential, secret = credential_create(
            user=account, label=label, actor=actor, **form.granted()
        )
        return _detail(request, actor, account, made=new_secret(request, credential, secret))
    focus_first_error(form)
    return _detail(request, actor, account, form=form)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def service_account_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Another name, other groups, or whether it may act for others."""
    actor = require_administrator(request)
    account = get_object_or_404(service_accounts_visible_to(actor), pk=pk)
    now = {
        "name": account.username,
        "groups": list(account.groups.all()),
        "can_act_for_owners": account.can_act_for_owners,
    }
    form = ServiceAccountForm(request.POST or None, initial=now, auto_id="dialog_%s")
    back = reverse("service_account", args=[pk])
    if request.method == "POST" and form.is_valid():
        try:
            service_account_change(actor=actor, account=account, **form.changes())
        except RpmError as error:
            add_errors(form, error)
        else:
            return redirect_to(request, back)
    focus_first_error(form)
    context = {"account": account, "form": form, "back": back}
    status = 400 if request.method == "POST" else 200
    return page_or_dialog(request, "settings/service_account_edit.html", context, status=status)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def service_account_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Say what ends and what stays; then remove it."""
    actor = require_administrator(request)
    account = get_object_or_404(service_accounts_visible_to(actor), pk=pk)
    if request.method == "POST":
        name = account.username
        service_account_remove(actor=actor, account=account)
        say(request, f"Service account {name} is deleted.")
        return redirect_to(request, reverse("service_account_list"))
    context = {
        "account": account,
        "credentials": len(live_credentials(account)),
        "tasks": task_counts_of(account),
        "back": reverse("service_account", args=[pk]),
    }
    return page_or_dialog(request, "settings/service_account_delete.html", context)


def _detail(
    request: HttpRequest,
    actor: User,
    account: User,
    *,
    form: CredentialForm | None = None,
    made: NewSecret | None = None,
) -> HttpResponse:
    context = {
        "account": get_object_or_404(service_accounts_visible_to(actor), pk=account.pk),
        "credentials": live_credentials(account),
        "form": form or CredentialForm(),
        "made": made,
        "tasks": task_counts_of(account),
    }
    status = 400 if form is not None and form.is_bound else 200
    return render(request, "settings/service_account.html", context, status=status)


def _create(form: ServiceAccountNewForm, actor: User) -> NewServiceAccount | None:
    if not form.is_valid():
        return None
    try:
        return service_account_create(actor=actor, **form.changes(), **form.granted())
    except RpmError as error:
        add_errors(form, error)
        return None
