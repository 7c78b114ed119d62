"""Vaults: the list, one vault with its text, and what they bring to a task."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.text import slugify
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.access.isolation import without_other_tenants
from apps.access.services.vaults import (
    vault_change,
    vault_move,
    vault_remove,
    vault_restore,
    vault_switch,
)
from apps.access.vaults import (
    vault_permissions,
    vault_versions,
    visible_vault,
    visible_vault_version,
)
from apps.accounts.models import User
from apps.core.errors import NotAllowed, NotFound, RpmError, Stale
from apps.dashboard.access import person
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_vaults import VaultForm
from apps.dashboard.layout import page_or_dialog
from apps.dashboard.live import key_id
from apps.dashboard.selectors.tasks import visible_task
from apps.dashboard.selectors.vaults import VaultHistory, vault_events, vault_sections
from apps.tasks.selectors.vaults import effective_vault
from apps.vaults.models import Vault, VaultFormat
from apps.vaults.selectors.effective import vault_text, version_text
from apps.vaults.services.vaults import vault_create

ENDINGS = {VaultFormat.HOCON: "conf", VaultFormat.JSON: "json", VaultFormat.YAML: "yaml"}


# permission: every signed-in user; the selector shows what they may see
@require_GET
@login_required
@never_cache
def vault_list(request: HttpRequest) -> HttpResponse:
    """One's own vaults, those of groups, and for administrators that there are others."""
    q = request.GET.get("q", "").replace("\0", "").strip()[:100]
    context = {"sections": vault_sections(person(request), q), "q": q}
    return render(request, "pages/vault_list.html", context)


# permission: every signed-in user; only administrators make vaults of groups (the service checks)
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
@sensitive_post_parameters("text")
def vault_new(request: HttpRequest) -> HttpResponse:
    """A new vault, typed or from a file."""
    user = person(request)
    form = VaultForm(
        _post_data(request), request.FILES or None, user=user, initial=_initial(request)
    )
    if request.method == "POST" and form.is_valid():
        try:
            vault = vault_create(
                actor=user,
                group=form.cleaned_data.get("group"),
                is_active=form.cleaned_data["is_active"],
                **form.changes(),
            )
        except RpmError as error:
            add_errors(form, error)
        else:
            messages.success(request, f"Vault {vault.name} is created.")
            return redirect("vault_list")
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    return render(request, "pages/vault_edit.html", {"form": form}, status=status)


# permission: readers of the vault; its text by `read`, changes by `change` (the service checks)
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
@sensitive_post_parameters("text")
def vault_detail(request: HttpRequest, pk: UUID) -> HttpResponse:
    """One vault: its text for those who may read it, and who did what with it."""
    user = person(request)
    vault = visible_vault(user, pk)
    permissions = vault_permissions(user, vault)
    text = vault_text(vault) if permissions.read else None
    form = _form(request, user, vault, text) if permissions.change else None
    if request.method == "POST" and form is None:
        raise NotAllowed("You may see this vault, but not change it.")
    if request.method == "POST" and form is not None and _save(form, user, vault):
        messages.success(request, f"Vault {vault.name} is saved.")
        return redirect("vault_list")
    before = key_id(request.GET.get("before", "")) or None
    context = {
        "form": form,
        "vault": vault,
        "permissions": permissions,
        "text": text,
        "history": _history(user, vault, before)
        if permissions.read or permissions.switch_off
        else None,
        "kept": set(vault_versions(user, vault).values_list("version", flat=True)),
        "is_stale": form is not None and form.has_error("text", "stale"),
    }
    status = 400 if request.method == "POST" else 200
    return render(request, "pages/vault_edit.html", context, status=status)


# permission: `change` of the vault; administrators switch any off (the service checks)
@require_POST
@login_required
def vault_switch_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Use it for tasks from now on, or not."""
    user = person(request)
    is_active = request.POST.get("is_active") == "1"
    vault = vault_switch(actor=user, vault=visible_vault(user, pk), is_active=is_active)
    word = "on: tasks that start from now on get it" if is_active else "off"
    messages.success(request, f"{vault.name} is {word}.")
    return redirect("vault_list")


# permission: the owner; administrators for those of groups (the service checks)
@require_POST
@login_required
def vault_move_now(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Give it another position."""
    user = person(request)
    position = request.POST.get("position", "")
    if not position.isdecimal() or len(position) > 5:
        raise BadRequest
    vault_move(actor=user, vault=visible_vault(user, pk), position=int(position))
    return redirect("vault_list")


# permission: the owner; administrators for those of groups (the service checks)
@require_http_methods(["GET", "POST"])
@login_required
def vault_delete(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Ask, and remove it."""
    user = person(request)
    vault = visible_vault(user, pk)
    if not vault_permissions(user, vault).own:
        raise Http404
    if request.method == "POST":
        vault_remove(actor=user, vault=vault)
        messages.success(request, f"Vault {vault.name} is removed.")
        return redirect("vault_list")
    return page_or_dialog(request, "pages/vault_delete.html", {"vault": vault})


# permission: `read` of the vault
@require_GET
@login_required
@never_cache
def vault_download(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Its text as a file, with stars in the place of secrets."""
    user = person(request)
    vault = visible_vault(user, pk)
    if not vault_permissions(user, vault).read:
        raise Http404
    ending = ENDINGS[VaultFormat(vault.format)]
    name = f"{slugify(vault.name) or 'vault'}.{ending}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(
        vault_text(vault), content_type="text/plain; charset=utf-8", headers=headers
    )


# permission: `read` of the vault; `change` to bring it back (the service checks)
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def vault_version(request: HttpRequest, pk: UUID, number: int) -> HttpResponse:
    """What it held before, and the way back to that."""
    user = person(request)
    vault = visible_vault(user, pk)
    row = visible_vault_version(user, vault, number)
    context: dict[str, Any] = {
        "vault": vault,
        "row": row,
        "permissions": vault_permissions(user, vault),
    }
    if request.method == "POST":
        try:
            version = key_id(request.POST.get("version", "")) or None
            vault_restore(actor=user, vault=vault, to=number, version=version)
        except RpmError as error:
            context["problem"] = error.detail
        else:
            messages.success(request, f"{vault.name} is restored to version {number}.")
            return redirect("vault_detail", pk)
    context["text"] = version_text(row)
    status = 400 if "problem" in context else 200
    return render(request, "pages/vault_version.html", context, status=status)


# permission: the owner of the task, and administrators
@require_GET
@login_required
@never_cache
def task_vaults(request: HttpRequest, pk: UUID) -> HttpResponse:
    """What vaults bring to a task: asked for by its page, which does not wait for it."""
    user = person(request)
    task = visible_task(user, str(pk))
    if task is None:
        raise Http404
    try:
        context: dict[str, Any] = {"found": effective_vault(user, task)}
    except NotFound:
        raise
    except RpmError as error:
        context = {"problem": error.detail}
    return render(request, "components/task_vaults.html", context)


def _post_data(request: HttpRequest) -> Any:
    return request.POST if request.method == "POST" else None


def _initial(request: HttpRequest) -> dict[str, Any]:
    """What a new vault begins with; `?group=` comes from the section of groups."""
    return {"format": VaultFormat.HOCON, "group": key_id(request.GET.get("group", "")) or None}


def _form(request: HttpRequest, user: User, vault: Vault, text: str | None) -> VaultForm:
    """The form of a vault that is there, as it is now or as it was sent."""
    initial = {
        "name": vault.name,
        "format": vault.format,
        "text": text,
        "enforced": "\n".join(vault.enforced),
        "is_active": vault.is_active,
        "version": vault.version,
    }
    files = request.FILES or None
    return VaultForm(_post_data(request), files, user=user, vault=vault, initial=initial)


def _history(user: User, vault: Vault, before: int | None) -> VaultHistory:
    """Its events, without the names of users who now belong to another tenant."""
    found = vault_events(vault, before)
    return replace(found, events=tuple(without_other_tenants(user, found.events, "actor")))


def _save(form: VaultForm, user: User, vault: Vault) -> bool:
    """Save the vault; after a conflict both texts are shown and nothing is overwritten."""
    if form.is_valid():
        given = form.cleaned_data
        version = given["version"] or -1
        try:
            vault_change(actor=user, vault=vault, changes=form.changes(), version=version)
            vault_switch(actor=user, vault=vault, is_active=given["is_active"])
        except Stale as error:
            words = f"{error.detail} The stored text is below; saving again replaces it."
            # The user sees what is stored and may send the form again.
            form.data = {**{name: form.data[name] for name in form.data}, "version": vault.version}
            form.add_error("text", ValidationError(words, code="stale"))
        except RpmError as error:
            add_errors(form, error)
    focus_first_error(form)
    return form.is_valid()
