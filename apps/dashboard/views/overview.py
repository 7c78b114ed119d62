"""Overview; and any card by itself."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.access.selectors import policies_visible_to, queues_open_to
from apps.dashboard.access import person
from apps.dashboard.cards.activity import load_activity
from apps.dashboard.render import card_render
from apps.dashboard.views.history import history_query


# permission: every signed-in user; the card checks what it shows
@require_GET
@login_required
@never_cache
def card(request: HttpRequest, name: str) -> HttpResponse:
    """One card, for pages whose socket is down; 304 where nothing changed."""
    rendered = card_render(name, request.GET.get("key", ""), person(request))
    if rendered is None:
        raise Http404
    tag = f'"{rendered.version}"'
    if request.headers.get("If-None-Match") == tag:
        return HttpResponseNotModified()
    return HttpResponse(rendered.html, headers={"ETag": tag})


# permission: every signed-in user; the card shows what they may see
@require_GET
@login_required
def overview_page(request: HttpRequest) -> HttpResponse:
    """The whole and each pool; it asks for the parts below, which take longer, by itself."""
    user = person(request)
    context = {
        "may_enqueue": queues_open_to(user).exists(),
        "has_history": policies_visible_to(user).exists(),
        "history": history_query(request),
    }
    return render(request, "pages/overview.html", context)


# permission: every signed-in user, for the tasks that they see
@require_GET
@login_required
@never_cache
def overview_activity(request: HttpRequest) -> HttpResponse:
    """The latest events, idle tasks and the top users."""
    activity = load_activity(person(request))
    return render(request, "overview/activity.html", {"activity": activity})
