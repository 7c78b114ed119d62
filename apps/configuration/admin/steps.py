"""Validate, provision and reset as pages that show first what will happen."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.configuration.selectors import draft_changes, draft_document
from apps.configuration.services.drafts import draft_reset
from apps.configuration.services.preview import draft_preview
from apps.configuration.services.provision import document_provision
from apps.configuration.services.validation import document_check
from apps.core.errors import RpmError
from apps.policies.models import DraftState

DRAFT = "admin:policies_draftstate_changelist"


# Permission: administrators.
def validate_view(request: HttpRequest) -> HttpResponse:
    """Errors and warnings of the draft."""
    _require_admin(request)
    return _page(request, title="Validate the draft", verb="", looks_ahead=True)


# Permission: administrators.
def provision_view(request: HttpRequest) -> HttpResponse:
    """Show what provisioning would change; a POST provisions."""
    actor = _require_admin(request)
    if request.method == "POST":
        note = request.POST.get("note", "")[:1000]
        version = _version(request)
        try:
            revision = document_provision(actor=actor, note=note, version=version)
        except RpmError as error:
            messages.error(request, error.detail)
        else:
            messages.success(request, f"Provisioned as revision {revision.number}.")
            return redirect(DRAFT)
    return _page(request, title="Provision the draft", verb="Provision", looks_ahead=True)


# Permission: administrators.
def reset_view(request: HttpRequest) -> HttpResponse:
    """Show what resetting would discard; a POST resets."""
    actor = _require_admin(request)
    if request.method == "POST":
        try:
            draft_reset(actor=actor, version=_version(request))
        except RpmError as error:
            messages.error(request, error.detail)
        else:
            messages.success(request, "The draft is what is live.")
            return redirect(DRAFT)
    return _page(request, title="Reset the draft", verb="Reset")


def _require_admin(request: HttpRequest) -> User:
    if not isinstance(request.user, User) or not is_admin(request.user):
        raise PermissionDenied
    return request.user


def _version(request: HttpRequest) -> int:
    given = request.POST.get("version", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else -1


def _page(
    request: HttpRequest, *, title: str, verb: str, looks_ahead: bool = False
) -> HttpResponse:
    found = document_check(draft_document())
    has_errors = any(finding.is_error for finding in found)
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": title,
        "verb": verb,
        "version": DraftState.objects.get(id=1).version,
        "changes": [str(change) for change in draft_changes()],
        "errors": [finding for finding in found if finding.is_error],
        "warnings": [finding for finding in found if not finding.is_error],
        "preview": draft_preview(actor=None) if looks_ahead and not has_errors else None,
    }
    return render(request, "admin/draft_step.html", context)
