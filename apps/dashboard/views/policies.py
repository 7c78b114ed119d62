"""Policies as people see them: the list, one policy, its use over time, what can be started."""

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.access.selectors import (
    policies_changeable_by,
    policies_managed_by,
    policies_visible_to,
    queues_open_to,
)
from apps.accounts.models import User
from apps.allocation.whatif.start_counts import start_counts
from apps.dashboard.access import may_make_policies, person
from apps.dashboard.cards.policy_list import PolicyFilter
from apps.dashboard.cards.sparklines import Sparkline
from apps.dashboard.cards.start_rows import start_rows
from apps.dashboard.selectors.people import people_of
from apps.dashboard.views.history import history_query
from apps.policies.models import Policy, Queue
from apps.policies.selectors import policy_applies_to
from apps.usage.selectors.usage_history import HOURS, usage_of_each

SPARKLINE_STEPS = 48
# As many queues as are asked what can be started.
MOST_QUEUES = 12


# permission: every signed-in user; the card shows what they may see
@require_GET
@login_required
def policy_list(request: HttpRequest) -> HttpResponse:
    """The policies that the person sees, filtered and sorted."""
    wanted = PolicyFilter.parse(request.META.get("QUERY_STRING", ""))
    context = {
        "wanted": wanted,
        "key": wanted.query(),
        "may_make": may_make_policies(person(request)),
    }
    return render(request, "pages/policy_list.html", context)


# permission: members of the policy's group, and administrators
@require_GET
@login_required
def policy_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One policy with its queues and what they hold."""
    user = person(request)
    return render(
        request,
        "pages/policy_detail.html",
        policy_context(user, policy_or_404(user, pk)) | {"history": history_query(request)},
    )


# permission: members of the policy's group, and administrators
@require_GET
@login_required
@never_cache
def policy_can_start(request: HttpRequest, pk: int) -> HttpResponse:
    """What this person could start right now: asked for by the page, which does not wait for it."""
    user = person(request)
    policy = policy_or_404(user, pk)
    queues = _open_queues(user, policy)
    found = start_counts(actor=user, queues=queues[:MOST_QUEUES])
    context = {
        "rows": start_rows(found),
        "at": timezone.now(),
        "more": max(len(queues) - MOST_QUEUES, 0),
    }
    return render(request, "policies/can_start.html", context)


# permission: every signed-in user, for the policies that they see
@require_GET
@login_required
@never_cache
def policy_sparklines(request: HttpRequest) -> HttpResponse:
    """The last day of every policy, small: what the lines of the list refer to."""
    visible = policies_visible_to(person(request)).values_list("pk", flat=True)
    found = usage_of_each(visible, until=timezone.now(), hours=HOURS, steps=SPARKLINE_STEPS)
    sparklines = [Sparkline.of(pk, values) for pk, values in found.items()]
    return render(request, "policies/sparklines.html", {"sparklines": sparklines})


def policy_or_404(user: User, pk: int) -> Policy:
    """The policy, for those who may see it; for others it does not exist."""
    return get_object_or_404(policies_visible_to(user).select_related("group", "parent"), pk=pk)


def policy_context(user: User, policy: Policy) -> dict[str, object]:
    """What the page of a policy shows next to its cards."""
    may_edit = policies_changeable_by(user).filter(pk=policy.pk).exists()
    is_member = may_edit or policy_applies_to(policy, user)
    parent = policies_visible_to(user).filter(children=policy).first()
    return {
        "policy": policy,
        "parent": parent,
        "may_edit": may_edit,
        "may_manage": policies_managed_by(user).filter(pk=policy.pk).exists(),
        "may_enqueue": queues_open_to(user).filter(policy=policy).first(),
        "people": people_of(policy, are_named=is_member),
    }


def _open_queues(user: User, policy: Policy) -> list[Queue]:
    queues = queues_open_to(user).filter(Q(policy=policy) & Q(profile__removed_at__isnull=True))
    return list(queues.select_related("profile").order_by("profile__position", "profile_id"))
