"""Search: every object, page and action that a person has, by the keyboard."""

from collections.abc import Iterator

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.accounts.models import User
from apps.accounts.selectors import is_admin, manages_people
from apps.dashboard.access import may_make_policies, person
from apps.dashboard.context import site
from apps.dashboard.selectors.search import Hit, search_results


# permission: every signed-in user; it finds what they may see
@require_GET
@login_required
@never_cache
def search(request: HttpRequest) -> HttpResponse:
    """What fits the words: a page, or for the dialog only the results."""
    user = person(request)
    found = search_results(user, request.GET.get("q", ""), _pages(request, user))
    is_part = "HX-Request" in request.headers
    template = "components/search_results.html" if is_part else "pages/search.html"
    response = render(request, template, {"found": found})
    patch_vary_headers(response, ["HX-Request"])
    return response


def _pages(request: HttpRequest, user: User) -> Iterator[Hit]:
    """The actions and pages of this person; the navigation knows the pages."""
    yield from _actions(user)
    known = site(request)
    for entry in (*known["navigation"], *known["settings_entries"]):
        yield Hit(entry.label, entry.href, entry.icon, "Page")


def _actions(user: User) -> Iterator[Hit]:
    yield Hit("New task", reverse("task_enqueue"), "plus", "Enqueue or keep as a draft")
    if may_make_policies(user):
        yield Hit("New policy", reverse("policy_new"), "plus")
    if is_admin(user):
        yield Hit("Edit pools and profiles", reverse("resource_editor"), "pencil")
        yield Hit("Add node", reverse("node_add"), "plus")
    if manages_people(user):
        yield Hit("Invite people", reverse("person_invite"), "plus")
    yield Hit("New vault", reverse("vault_new"), "plus")
    yield Hit("Explain permissions", reverse("access_explain"), "circle-help")
