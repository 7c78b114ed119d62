"""The list of tasks, and its tabs."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.access.selectors import policies_visible_to, queues_visible_to
from apps.dashboard.access import person
from apps.dashboard.cards.task_filter_chips import filter_chips
from apps.dashboard.cards.task_list import tabs
from apps.dashboard.forms_bulk import VERBS
from apps.dashboard.selectors.tasks import TaskFilter, task_counts
from apps.nodes.selectors import nodes_visible_to


# permission: every signed-in user; the card shows what they may see
@require_GET
@login_required
def task_list(request: HttpRequest) -> HttpResponse:
    """Tasks, filtered."""
    user = person(request)
    wanted = TaskFilter.parse(request.META.get("QUERY_STRING", ""))
    context = {
        "wanted": wanted,
        "key": wanted.query(),
        "tabs": tabs(wanted),
        "chips": filter_chips(user, wanted),
        "queues": queues_visible_to(user).order_by("name"),
        "policies": policies_visible_to(user),
        "nodes": nodes_visible_to(user).order_by("name"),
        "bulk_verbs": [(verb, button) for verb, (button, _) in VERBS.items()],
    }
    return render(request, "pages/task_list.html", context)


# permission: every signed-in user, for the tasks that they see
@require_GET
@login_required
@never_cache
def task_tabs(request: HttpRequest) -> HttpResponse:
    """The tabs of the list with numbers: asked for by the page, which does not wait for them."""
    wanted = TaskFilter.parse(request.META.get("QUERY_STRING", ""))
    found = tabs(wanted, task_counts(person(request), wanted))
    return render(request, "components/task_tabs.html", {"tabs": found})
