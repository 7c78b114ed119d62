"""Identity providers and how people log in, for administrators."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts.identity.connection_tests import (
    connection_test_begin,
    connection_test_discard,
    connection_test_outcome,
    last_tested_provider,
    provider_under_test,
)
from apps.accounts.identity.presets import PRESETS
from apps.accounts.identity.providers import claims_text
from apps.accounts.models import IdentityProvider, Protocol, User
from apps.accounts.selectors import identity_providers, links_of, log_in_rules
from apps.accounts.services.identity import (
    log_in_rules_change,
    provider_change,
    provider_create,
    provider_draft,
    provider_remove,
    slug_new,
)
from apps.core.errors import RpmError
from apps.dashboard.access import require_administrator
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_identity import LogInRulesForm, ProviderForm, preset_choices
from apps.dashboard.toasts import say


# permission: administrators
@require_GET
@login_required
def identity_list(request: HttpRequest) -> HttpResponse:
    """All providers, and how people log in."""
    require_administrator(request)
    rules = log_in_rules()
    context = {
        "rows": [(row, PRESETS.get(row.preset)) for row in identity_providers()],
        "rules": rules,
        "rules_groups": rules.second_factor_groups.order_by("name"),
    }
    return render(request, "settings/identity.html", context)


# permission: administrators
@require_GET
@login_required
def identity_choose(request: HttpRequest) -> HttpResponse:
    """What kind of provider it is."""
    require_administrator(request)
    return render(request, "settings/identity_choose.html", {"protocols": preset_choices()})


# permission: administrators
@never_cache
@sensitive_post_parameters("client_secret")
@require_http_methods(["GET", "POST"])
@login_required
def identity_new(request: HttpRequest, preset: str) -> HttpResponse:
    """The form of a new provider; its id is made before, so that its address can be copied."""
    user = require_administrator(request)
    known = PRESETS.get(preset)
    if known is None:
        raise Http404
    slug = request.POST.get("slug") or request.GET.get("slug") or slug_new(preset)
    row = last_tested_provider(request, slug) or IdentityProvider(
        **known.values, preset=preset, protocol=known.protocol, slug=slug
    )
    return _edit(request, user, row)


# permission: administrators
@never_cache
@sensitive_post_parameters("client_secret")
@require_http_methods(["GET", "POST"])
@login_required
def identity_edit(request: HttpRequest, slug: str) -> HttpResponse:
    """The settings of a provider."""
    user = require_administrator(request)
    row = get_object_or_404(identity_providers(), slug=slug)
    # Back from a test, the form is as it was; otherwise it shows what is saved.
    tried = last_tested_provider(request, slug) if "tried" in request.GET else None
    return _edit(request, user, tried or row)


# permission: administrators
@require_POST
@login_required
def identity_switch(request: HttpRequest, slug: str) -> HttpResponse:
    """Activate or deactivate a provider."""
    user = require_administrator(request)
    row = get_object_or_404(identity_providers(), slug=slug)
    is_active = request.POST.get("is_active") == "1"
    provider_change(actor=user, provider=row, values={"is_active": is_active})
    word = "is active" if is_active else "is switched off: nobody can sign in with it"
    say(request, f"{row.name} {word}.")
    return redirect("identity_list")


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def identity_delete(request: HttpRequest, slug: str) -> HttpResponse:
    """Confirm, then remove the provider."""
    user = require_administrator(request)
    row = get_object_or_404(identity_providers(), slug=slug)
    if request.method == "POST":
        provider_remove(actor=user, provider=row)
        say(request, f"{row.name} is removed.")
        return redirect("identity_list")
    return render(request, "settings/identity_delete.html", {"row": row})


# permission: administrators, for their own test
@never_cache
@require_GET
@login_required
def identity_test(request: HttpRequest) -> HttpResponse:
    """Before the test: what will happen, and the way to the provider."""
    require_administrator(request)
    row = provider_under_test(request)
    if row is None:
        raise Http404
    return render(request, "settings/identity_test.html", {"row": row, "back": _form_of(row)})


# permission: administrators, for their own test
@never_cache
@require_GET
@login_required
def identity_test_outcome(request: HttpRequest) -> HttpResponse:
    """What the provider answered and what it would mean; nobody was signed in."""
    require_administrator(request)
    outcome = connection_test_outcome(request)
    if outcome is None:
        raise Http404
    row = last_tested_provider(request, outcome["slug"])
    theirs = set(outcome["identity"]["groups"]) if outcome["identity"] else set()
    context = {
        "outcome": outcome,
        "claims": claims_text(outcome["claims"]),
        "mapping": [(name, group, name in theirs) for name, group in outcome["mapping"]],
        "back": _form_of(row) if row is not None else reverse("identity_list"),
    }
    return render(request, "settings/identity_outcome.html", context)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def log_in_settings(request: HttpRequest) -> HttpResponse:
    """Passwords, break-glass and second factors."""
    user = require_administrator(request)
    form = LogInRulesForm(request.POST or None, rules=log_in_rules())
    if request.method == "POST" and form.is_valid():
        try:
            log_in_rules_change(actor=user, **form.cleaned_data)
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, "Saved. It applies from the next log-in on.")
            return redirect("identity_list")
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    context = {"form": form, "has_provider": identity_providers().filter(is_active=True).exists()}
    return render(request, "settings/log_in.html", context, status=status)


def _edit(request: HttpRequest, user: User, row: IdentityProvider) -> HttpResponse:
    is_new = not row.pk
    form = ProviderForm(
        request.POST or None, request.FILES or None, row=row, pairs=_pairs(request, row)
    )
    if request.method == "POST" and form.is_valid():
        try:
            return _submit(request, user, row, form)
        except RpmError as error:
            add_errors(form, error)
    focus_first_error(form)
    own = "oidc_callback" if row.protocol == Protocol.OIDC else "saml_acs"
    context: dict[str, Any] = {
        "form": form,
        "row": row,
        "is_new": is_new,
        "preset": PRESETS.get(row.preset),
        "known": 0 if is_new else links_of(row).count(),
        "address": request.build_absolute_uri(reverse(own, args=[row.slug])),
        "metadata": request.build_absolute_uri(reverse("saml_metadata", args=[row.slug])),
    }
    status = 400 if request.method == "POST" else 200
    return render(request, "settings/identity_form.html", context, status=status)


def _submit(
    request: HttpRequest, user: User, row: IdentityProvider, form: ProviderForm
) -> HttpResponse:
    """Try what was typed, or save it."""
    values, pairs = form.values(), form.cleaned_data["mapping"]
    if "test" in request.POST:
        draft = provider_draft(preset=row.preset, slug=row.slug, values=values, kept=row)
        connection_test_begin(request, draft, [(name, group.name) for name, group in pairs])
        return redirect("identity_test")
    # What a test kept sealed counts as typed, unless a new value was typed.
    if not row.pk:
        made = provider_create(
            actor=user,
            preset=row.preset,
            slug=row.slug,
            values=values,
            mapping=pairs,
            begun=row,
        )
    else:
        made = provider_change(actor=user, provider=row, values=values, mapping=pairs, begun=row)
    connection_test_discard(request)
    say(request, f"{made.name} is saved.")
    return redirect("identity_list")


def _pairs(request: HttpRequest, row: IdentityProvider) -> list[str]:
    outcome = connection_test_outcome(request)
    if outcome is not None and outcome["slug"] == row.slug and "tried" in request.GET:
        return [f"{name} = {group}" for name, group in outcome["mapping"]]
    if not row.pk:
        return []
    rows = IdentityProvider.objects.get(pk=row.pk).mapping.select_related("group")
    return [f"{one.external_name} = {one.group.name}" for one in rows]


def _form_of(row: IdentityProvider) -> str:
    if row.pk:
        return f"{reverse('identity_edit', args=[row.slug])}?tried=1"
    return f"{reverse('identity_new', args=[row.preset])}?slug={row.slug}&tried=1"
