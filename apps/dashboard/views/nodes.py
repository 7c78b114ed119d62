"""Nodes: the list, one node, and whether it takes work."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts.models import User
from apps.dashboard.access import administrator
from apps.dashboard.cards.words import plural
from apps.dashboard.layout import pause_page
from apps.dashboard.live import key_id
from apps.dashboard.toasts import Undo, say
from apps.nodes.models import Node
from apps.nodes.selectors import nodes_visible_to
from apps.nodes.services import node_drain, node_pause, node_resume
from apps.tasks.models import Member


# permission: administrators
@require_GET
@login_required
def node_list(request: HttpRequest) -> HttpResponse:
    """All nodes; a page whose node was removed leads here and names it."""
    administrator(request)
    if "removed" in request.GET:
        pk = key_id(request.GET["removed"])
        gone = Node.objects.filter(pk=pk, removed_at__isnull=False).first()
        if gone is not None:
            say(request, f"{gone.name} is removed.")
        return redirect("node_list")
    return render(request, "pages/node_list.html")


# permission: administrators
@require_GET
@login_required
def node_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One node."""
    return render(request, "pages/node_detail.html", {"node": _node(administrator(request), pk)})


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def node_pause_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask why, and let the node take nothing new."""
    user = administrator(request)
    node = _node(user, pk)
    running = Member.objects.filter(node=node, released_at__isnull=True)
    count = running.values("attempt").distinct().count()
    return pause_page(
        request,
        thing=node,
        what=node.name,
        sentence=(
            "It takes nothing new until it is resumed. "
            f"{plural(count, 'running task')} there {'goes' if count == 1 else 'go'} on."
        ),
        back=reverse("node_detail", args=[pk]),
        resume=reverse("node_resume", args=[pk]),
        pause=lambda reason: node_pause(actor=user, node=node, reason=reason),
    )


# permission: administrators
@require_POST
@login_required
def node_resume_now(request: HttpRequest, pk: int) -> HttpResponse:
    """Lift the pause, and stop draining."""
    user = administrator(request)
    node = node_resume(actor=user, node=_node(user, pk))
    say(request, f"{node.name} accepts tasks again.")
    return redirect("node_detail", pk)


# permission: administrators
@require_POST
@login_required
def node_drain_now(request: HttpRequest, pk: int) -> HttpResponse:
    """Finish what runs there and take nothing new."""
    user = administrator(request)
    node = node_drain(actor=user, node=_node(user, pk))
    say(
        request,
        f"{node.name} drains: its tasks run to their end.",
        undo=Undo(reverse("node_resume", args=[pk])),
    )
    return redirect("node_detail", pk)


def _node(user: User, pk: int) -> Node:
    return get_object_or_404(nodes_visible_to(user), pk=pk)
