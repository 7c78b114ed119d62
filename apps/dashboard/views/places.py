"""Overview, policies, queues, resources, nodes; and any card by itself."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.dashboard.access import administrator, person
from apps.dashboard.render import card_render
from apps.policies.selectors import (
    policies_visible_to,
    queues_managed_by,
    queues_open_to,
    queues_visible_to,
)


# permission: whoever is signed in; the card checks what it shows
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


# permission: whoever is signed in; the card shows what they may see
@require_GET
@login_required
def overview_page(request: HttpRequest) -> HttpResponse:
    """The whole, and each pool."""
    open_queues = queues_open_to(person(request)).exists()
    return render(request, "pages/overview.html", {"may_enqueue": open_queues})


# permission: whoever is signed in; the card shows what they may see
@require_GET
@login_required
def policy_list(request: HttpRequest) -> HttpResponse:
    """All policies that the person sees."""
    return render(request, "pages/policy_list.html")


# permission: members of the policy's group, and administrators
@require_GET
@login_required
def policy_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One policy with its queues and what they hold."""
    user = person(request)
    policy = get_object_or_404(policies_visible_to(user).select_related("parent"), pk=pk)
    parent = policies_visible_to(user).filter(children=policy).first()
    may_enqueue = queues_open_to(user).filter(policy=policy).first()
    context = {"policy": policy, "parent": parent, "may_enqueue": may_enqueue}
    return render(request, "pages/policy_detail.html", context)


# permission: whoever is signed in; the card shows what they may see
@require_GET
@login_required
def queue_list(request: HttpRequest) -> HttpResponse:
    """All queues that the person sees."""
    return render(request, "pages/queue_list.html")


# permission: view of the queue
@require_GET
@login_required
def queue_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One queue with its waiting tasks."""
    user = person(request)
    queue = get_object_or_404(queues_visible_to(user), pk=pk)
    context = {
        "queue": queue,
        "may_enqueue": queues_open_to(user).filter(pk=pk).exists(),
        "may_manage": queues_managed_by(user).filter(pk=pk).exists(),
    }
    return render(request, "pages/queue_detail.html", context)


# permission: whoever is signed in; the card shows what they may see
@require_GET
@login_required
def resource_board(request: HttpRequest) -> HttpResponse:
    """The live configuration, read-only."""
    return render(request, "pages/resources.html")


# permission: administrators
@require_GET
@login_required
def node_list(request: HttpRequest) -> HttpResponse:
    """All nodes."""
    administrator(request)
    return render(request, "pages/node_list.html")
