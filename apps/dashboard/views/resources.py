"""The provisioned configuration: the board, the switch, and single pools."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.access.selectors import pools_visible_to
from apps.accounts.models import User
from apps.configuration.services.pools import (
    pool_pause,
    pool_resume,
    resource_management_switch,
)
from apps.dashboard.access import person, require_administrator
from apps.dashboard.cards.resources import PoolInfo, load_pool_info
from apps.dashboard.cards.words import plural
from apps.dashboard.layout import page_or_dialog, pause_page
from apps.dashboard.selectors.current_tasks import current_tasks
from apps.dashboard.toasts import say
from apps.dashboard.undo import change_unless_stale, undo_event
from apps.dashboard.views.history import history_query
from apps.policies.models import LiveState, Pool


# permission: every signed-in user; the card shows what they may see
@require_GET
@login_required
def resource_board(request: HttpRequest) -> HttpResponse:
    """The live configuration."""
    return render(request, "pages/resources.html")


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def resource_switch(request: HttpRequest) -> HttpResponse:
    """Say what switching resource management off stops, and switch it."""
    user = require_administrator(request)
    if request.method == "POST":
        is_enabled = request.POST.get("is_enabled") == "1"
        state = change_unless_stale(
            request,
            lambda undoes: resource_management_switch(
                actor=user, is_enabled=is_enabled, undoes=undoes
            ),
        )
        if state is not None:
            _say_switched(request, user, state)
        return redirect("resources")
    current = current_tasks()
    waiting = [one.count for one in current.waiting.values() if one.count]
    context = {
        "waiting": sum(waiting),
        "queues": len(waiting),
        "running": len(current.attempts),
        "back": reverse("resources"),
    }
    return page_or_dialog(request, "pages/resource_switch.html", context)


# permission: administrators
@require_GET
@login_required
def pool_info(request: HttpRequest, pk: int) -> HttpResponse:
    """Which profiles a pool serves, what each takes, and their queues."""
    info: PoolInfo = load_pool_info(_pool(require_administrator(request), pk))
    return page_or_dialog(
        request, "pages/resource_pool.html", {"info": info, "back": reverse("resources")}
    )


# permission: view of the pool
@require_GET
@login_required
def pool_usage(request: HttpRequest, pk: int) -> HttpResponse:
    """What a pool holds over time."""
    context = {"pool": _pool(person(request), pk), "history": history_query(request)}
    return render(request, "pages/pool_usage.html", context)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
def pool_pause_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask why, and let the pool admit nothing."""
    user = require_administrator(request)
    pool = _pool(user, pk)
    running = sum(1 for one in current_tasks().attempts if one.pool_id == pool.pk)
    return pause_page(
        request,
        thing=pool,
        what=pool.name,
        sentence=(
            "Nothing new starts in this pool until it is resumed. "
            f"{plural(running, 'running task')} there {'goes' if running == 1 else 'go'} on."
        ),
        back=reverse("resources"),
        undo=lambda: undo_event(
            "pool.paused", pool, actor=user, address=reverse("pool_resume", args=[pk])
        ),
        pause=lambda reason: pool_pause(actor=user, pool=pool, reason=reason),
    )


# permission: administrators
@require_POST
@login_required
def pool_resume_now(request: HttpRequest, pk: int) -> HttpResponse:
    """Lift the pause."""
    user = require_administrator(request)
    pool = _pool(user, pk)
    if change_unless_stale(
        request, lambda undoes: pool_resume(actor=user, pool=pool, undoes=undoes)
    ):
        say(request, f"{pool.name} admits tasks again.")
    return redirect("resources")


def _say_switched(request: HttpRequest, user: User, state: LiveState) -> None:
    word, undo = "on", None
    # Off stops nothing that runs; on may start and preempt at once, and has no way back.
    if not state.is_enabled:
        address, fields = reverse("resource_switch"), {"is_enabled": "1"}
        word = "off"
        undo = undo_event(
            "configuration.switched", state, actor=user, address=address, fields=fields
        )
    say(request, f"Resource management is {word}.", undo=undo)


def _pool(user: User, pk: int) -> Pool:
    return get_object_or_404(pools_visible_to(user), pk=pk)
