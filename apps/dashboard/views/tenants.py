"""Tenants for administrators: the list, and making, changing and undoing one."""

from collections.abc import Callable

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from apps.accounts.models import Tenant, User
from apps.accounts.selectors import tenants_visible_to
from apps.configuration.services.tenants import (
    tenant_change,
    tenant_create,
    tenant_name,
    tenant_remove,
)
from apps.configuration.tenants import tenant_facts
from apps.core.errors import RpmError
from apps.dashboard.access import require_administrator
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_tenants import TenantForm
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.toasts import say


# permission: administrators
@require_GET
@login_required
@never_cache
def tenant_list(request: HttpRequest) -> HttpResponse:
    """Every tenant with what it holds."""
    rows = tenant_facts(tenants_visible_to(require_administrator(request)))
    return render(request, "settings/tenants.html", {"rows": rows})


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def tenant_new(request: HttpRequest) -> HttpResponse:
    """Make a policy with all below it the tree of a tenant."""
    actor = require_administrator(request)
    form = TenantForm(request.POST if request.method == "POST" else None)
    return _form_page(request, form, lambda: tenant_create(actor=actor, **form.cleaned_data))


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def tenant_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Who administers it, and which groups belong to it."""
    actor = require_administrator(request)
    tenant = _tenant_or_404(actor, pk)
    facts = tenant_facts([tenant])[0]
    now = {"admin_group": tenant.admin_group, "groups": list(facts.groups)}
    given = request.POST if request.method == "POST" else None
    form = TenantForm(given, tenant=tenant, initial=now)
    return _form_page(
        request,
        form,
        lambda: tenant_change(actor=actor, tenant=tenant, **form.cleaned_data),
        name=facts.name,
    )


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def tenant_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Say what stays, and undo the tenant."""
    actor = require_administrator(request)
    tenant = _tenant_or_404(actor, pk)
    facts = tenant_facts([tenant])[0]
    back = reverse("tenant_list")
    if request.method == "POST":
        tenant_remove(actor=actor, tenant=tenant)
        say(request, f"{facts.name} is not a tenant any more.")
        return redirect_to(request, back)
    return page_or_dialog(request, "settings/tenant_delete.html", {"facts": facts, "back": back})


def _form_page(
    request: HttpRequest, form: TenantForm, save: Callable[[], Tenant], *, name: str = ""
) -> HttpResponse:
    back = reverse("tenant_list")
    if request.method == "POST" and form.is_valid():
        try:
            saved = save()
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, f"Tenant {tenant_name(saved)} is saved.")
            return redirect_to(request, back)
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    context = {"form": form, "name": name, "back": back}
    return page_or_dialog(request, "settings/tenant_form.html", context, status=status)


def _tenant_or_404(actor: User, pk: int) -> Tenant:
    return get_object_or_404(tenants_visible_to(actor), pk=pk)
