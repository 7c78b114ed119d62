"""Nodes: the list, one node, and whether it takes work."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts.models import User
from apps.dashboard.access import require_administrator
from apps.dashboard.cards.node_use import SPANS, USUAL, load_node_use
from apps.dashboard.cards.nodes import resumable_parts
from apps.dashboard.cards.words import joined, plural
from apps.dashboard.layout import pause_page
from apps.dashboard.live import key_id
from apps.dashboard.toasts import Undo, say
from apps.dashboard.undo import change_unless_stale, undo_event
from apps.dashboard.views.history import history_query
from apps.nodes.models import Node
from apps.nodes.selectors import nodes_visible_to
from apps.nodes.services import RESUMABLE, node_drain, node_pause, node_resume
from apps.tasks.models import Member


# permission: administrators
@require_GET
@login_required
def node_list(request: HttpRequest) -> HttpResponse:
    """All nodes; a page whose node was removed leads here and names it."""
    require_administrator(request)
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
    node = _node(require_administrator(request), pk)
    context = {"node": node, "history": history_query(request), "use_hours": _use_hours(request)}
    return render(request, "pages/node_detail.html", context)


# permission: administrators
@require_GET
@login_required
@never_cache
def node_use(request: HttpRequest, pk: int) -> HttpResponse:
    """What the machine used over time."""
    user = require_administrator(request)
    node, hours = _node(user, pk), _use_hours(request)
    context = {
        "card": load_node_use(user, node, hours),
        "spans": [(words, f"use={one}", one == hours) for one, words in SPANS.items()],
        "page": reverse("node_detail", args=[pk]),
    }
    return render(request, "components/node_use.html", context)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def node_pause_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask why, and let the node take nothing new."""
    user = require_administrator(request)
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
        # A drain shares the column of the reason, which the undo could not restore.
        undo=None if node.is_draining else lambda: _undo(user, node, "node.paused", ends="pause"),
        pause=lambda reason: node_pause(actor=user, node=node, reason=reason),
    )


# permission: administrators
@require_POST
@login_required
def node_resume_now(request: HttpRequest, pk: int) -> HttpResponse:
    """End what keeps the node from new tasks; for an undo, only what its form names in `ends`."""
    user = require_administrator(request)
    before = _node(user, pk)
    ends = RESUMABLE.intersection(request.POST.getlist("ends")) or RESUMABLE
    node = change_unless_stale(
        request, lambda undoes: node_resume(actor=user, node=before, ends=ends, undoes=undoes)
    )
    if node is not None:
        say(request, _resumed(before, node))
    return redirect("node_detail", pk)


# permission: administrators
@require_POST
@login_required
def node_drain_now(request: HttpRequest, pk: int) -> HttpResponse:
    """Finish what runs there and take nothing new."""
    user = require_administrator(request)
    before = _node(user, pk)
    node = node_drain(actor=user, node=before)
    undo = None if before.is_draining else _undo(user, node, "node.draining", ends="drain")
    say(request, f"{node.name} drains: its tasks run to their end.", undo=undo)
    return redirect("node_detail", pk)


def _use_hours(request: HttpRequest) -> int:
    given = request.GET.get("use", "")
    return next((one for one in SPANS if str(one) == given), USUAL)


def _undo(user: User, node: Node, kind: str, *, ends: str) -> Undo:
    address = reverse("node_resume", args=[node.pk])
    return undo_event(kind, node, actor=user, address=address, fields={"ends": ends})


def _resumed(before: Node, node: Node) -> str:
    """What was ended, and whether something else still keeps the node from new tasks."""
    left = resumable_parts(node)
    ended = joined([part for part in resumable_parts(before) if part not in left])
    sentence = f"{node.name}: {ended} ended." if ended else f"{node.name}: nothing changed."
    if left:
        return f"{sentence} It takes nothing new because of {joined(left)}."
    return f"{sentence} It accepts tasks." if node.pool_id else f"{sentence} It has no pool."


def _node(user: User, pk: int) -> Node:
    return get_object_or_404(nodes_visible_to(user), pk=pk)
