"""Charts of GPUs held over time; their pages ask for them by themselves."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.access.selectors import policies_visible_to, pools_visible_to, queues_visible_to
from apps.dashboard.access import person, require_administrator
from apps.dashboard.cards.history_chart import HistoryQuery, HistorySubject, load_history_chart
from apps.dashboard.cards.history_subjects import (
    node_subject,
    overview_subject,
    policy_subject,
    pool_subject,
    queue_subject,
)
from apps.nodes.selectors import nodes_visible_to


# permission: every signed-in user, for the policies that they see
@require_GET
@login_required
@never_cache
def overview_history(request: HttpRequest) -> HttpResponse:
    """Of everything that the person sees."""
    return _chart(request, overview_subject(person(request)), reverse("overview"))


# permission: members of the policy's group, and administrators
@require_GET
@login_required
@never_cache
def policy_history(request: HttpRequest, pk: int) -> HttpResponse:
    """Of a policy and those below it."""
    user = person(request)
    policy = get_object_or_404(policies_visible_to(user), pk=pk)
    return _chart(request, policy_subject(user, policy), reverse("policy_detail", args=[pk]))


# permission: view of the queue
@require_GET
@login_required
@never_cache
def queue_history(request: HttpRequest, pk: int) -> HttpResponse:
    """Of a queue."""
    user = person(request)
    queue = get_object_or_404(queues_visible_to(user), pk=pk)
    return _chart(request, queue_subject(user, queue), reverse("queue_detail", args=[pk]))


# permission: view of the pool; of policies as far as the person sees them
@require_GET
@login_required
@never_cache
def pool_history(request: HttpRequest, pk: int) -> HttpResponse:
    """Of a pool."""
    user = person(request)
    pool = get_object_or_404(pools_visible_to(user), pk=pk)
    return _chart(request, pool_subject(user, pool), reverse("pool_usage", args=[pk]))


# permission: administrators
@require_GET
@login_required
@never_cache
def node_history(request: HttpRequest, pk: int) -> HttpResponse:
    """Of a node."""
    user = require_administrator(request)
    node = get_object_or_404(nodes_visible_to(user), pk=pk)
    return _chart(request, node_subject(user, node), reverse("node_detail", args=[pk]))


def history_query(request: HttpRequest) -> HistoryQuery:
    """What the address of a page, or of its chart, asks for."""
    return HistoryQuery.parse(request.META.get("QUERY_STRING", ""))


def _chart(request: HttpRequest, subject: HistorySubject, page: str) -> HttpResponse:
    wanted = history_query(request).about(subject)
    context = {
        "chart": load_history_chart(person(request), wanted, subject),
        "spans": wanted.spans(subject),
        "groups": wanted.groups(subject),
        "page": page,
    }
    return render(request, "components/history.html", context)
