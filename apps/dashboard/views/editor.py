"""The editor of the resource configuration: one page that holds the whole draft."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.dashboard.access import require_administrator
from apps.dashboard.selectors.editor import editor_choices, editor_state


# permission: administrators
@require_GET
@login_required
@never_cache
def resource_editor(request: HttpRequest) -> HttpResponse:
    """Board or matrix of the draft; what is done there goes through REST."""
    user = require_administrator(request)
    start = {
        "state": editor_state(user),
        "choices": editor_choices(),
        "urls": _addresses(),
        "me": user.username,
    }
    return render(request, "pages/resource_editor.html", {"start": start})


# permission: administrators
@require_GET
@login_required
@never_cache
def resource_editor_state(request: HttpRequest) -> HttpResponse:
    """The same state again, after provisioning and to show who else saved.

    With the CSRF token of now: signing in again, in another tab, voids the one in the page.
    """
    state = editor_state(require_administrator(request))
    return JsonResponse({**state, "csrf": get_token(request)})


def _addresses() -> dict[str, str]:
    """Where the page reads and writes."""
    return {
        "draft": reverse("draft"),
        "validate": reverse("draft-validate"),
        "preview": reverse("draft-preview"),
        "provision": reverse("draft-provision"),
        "reset": reverse("draft-reset"),
        "state": reverse("resource_editor_state"),
        "exit": reverse("resources"),
        "history": reverse("revision_list"),
        "yaml": reverse("resource_yaml"),
    }
