"""What administrators do with policies. A change that costs a task something is shown first."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from django import forms
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.access.selectors import policies_changeable_by, profiles_connectable_by
from apps.accounts.models import User
from apps.configuration.services.limits import profiles_to_connect
from apps.configuration.services.policies import policy_change, policy_create, policy_remove
from apps.configuration.services.pools import policy_pause, policy_resume
from apps.configuration.services.preview import (
    policy_change_preview,
    policy_create_preview,
    tasks_returned_by_change,
)
from apps.configuration.services.queues import (
    profile_connect,
    profile_disconnect,
    queue_name_suggest,
)
from apps.core.errors import RpmError
from apps.dashboard.access import require_policy_administrator
from apps.dashboard.cards.effects import Effects, effects_of
from apps.dashboard.cards.words import plural
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_policies import ConnectForm, DeleteForm, PolicyForm
from apps.dashboard.layout import page_or_dialog, pause_page, redirect_to
from apps.dashboard.live import key_id
from apps.dashboard.toasts import say
from apps.dashboard.undo import change_unless_stale, undo_event
from apps.dashboard.views.policies import policy_context
from apps.policies.models import Policy, Profile, Queue
from apps.policies.selectors import policy_family
from apps.usage.selectors.current_usage import live_attempts
from apps.usage.selectors.waiting_tasks import waiting_by_queue, waiting_sum

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FormOutcome(Generic[T]):
    """How far a form came: `saved`, or to be shown again with what its change would do.

    `needs_confirmation`: it was not saved, because tasks would lose something.
    """

    saved: T | None = None
    effects: Effects | None = None
    needs_confirmation: bool = False
    status: int = 200

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.effects.warnings if self.effects is not None else ()


# permission: administrators, and those of the policy's tenant
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def policy_new(request: HttpRequest) -> HttpResponse:
    """A new policy: its values, what it would do to the others, and then the policy."""
    actor = require_policy_administrator(request)
    form = PolicyForm(request.POST if request.method == "POST" else None, actor=actor)
    outcome = _process_form(
        request,
        form,
        preview=lambda: effects_of(policy_create_preview(actor=actor, **form.values()), ()),
        save=lambda: policy_create(actor=actor, **form.values()),
    )
    if outcome.saved is not None:
        words = f"Policy {outcome.saved.name} is created. Connect a profile to it."
        say(request, " ".join((words, *outcome.warnings)))
        return redirect_to(request, reverse("policy_edit", args=[outcome.saved.pk]))
    context = {"form": form, "outcome": outcome, "back": reverse("policy_list")}
    return page_or_dialog(request, "policies/new.html", context, status=outcome.status)


# permission: administrators, and those of the policy's tenant
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def policy_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """The page of a policy in the mode in which it is changed."""
    actor = require_policy_administrator(request)
    policy = _policy_or_404(actor, pk)
    given = request.POST if request.method == "POST" else None
    form = PolicyForm(given, actor=actor, policy=policy)
    outcome = _process_form(
        request,
        form,
        preview=lambda: effects_of(
            policy_change_preview(actor=actor, policy=policy, changes=form.changes()),
            tasks_returned_by_change(actor=actor, policy=policy, changes=form.changes()),
        ),
        save=lambda: _change(form, actor=actor, policy=policy),
    )
    if outcome.saved is not None:
        say(request, " ".join((f"Policy {outcome.saved.name} is saved.", *outcome.warnings)))
        return redirect("policy_edit", pk)
    queues = Queue.objects.filter(policy=policy, removed_at__isnull=True)
    context = {
        **policy_context(actor, policy),
        "form": form,
        "outcome": outcome,
        "queues": queues.select_related("profile").order_by("profile__position", "profile_id"),
    }
    return render(request, "pages/policy_edit.html", context, status=outcome.status)


# permission: administrators, and those of the policy's tenant
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def policy_connect(request: HttpRequest, pk: int) -> HttpResponse:
    """Connect a profile, under the name of a new queue."""
    actor = require_policy_administrator(request)
    policy = _policy_or_404(actor, pk)
    profiles = profiles_to_connect(actor, policy)
    first = next((one.profile for one in profiles if not one.problem), None)
    initial = (
        {"profile": first.pk, "name": queue_name_suggest(policy=policy, profile=first)}
        if first is not None
        else {}
    )
    given = request.POST if request.method == "POST" else None
    form = ConnectForm(given, initial=initial, profiles=profiles)
    queues = _connect_if_valid(form, lambda: _connect(form, actor=actor, policy=policy))
    if queues:
        said = [f"{queue.profile.name} is connected as {queue.name}." for queue in queues]
        say(request, " ".join(said))
        return redirect_to(request, reverse("policy_edit", args=[pk]))
    context = {
        "policy": policy,
        "form": form,
        "is_possible": first is not None,
        "has_profiles": bool(profiles),
        "suggested": request.POST.get("suggested", initial.get("name", "")),
        "back": reverse("policy_edit", args=[pk]),
    }
    status = 400 if request.method == "POST" else 200
    return page_or_dialog(request, "policies/connect.html", context, status=status)


# permission: administrators, and those of the policy's tenant
@require_GET
@login_required
@never_cache
def policy_queue_name(request: HttpRequest, pk: int) -> HttpResponse:
    """The field of the queue's name, with the name that is suggested for the profile."""
    actor = require_policy_administrator(request)
    policy = _policy_or_404(actor, pk)
    profile = get_object_or_404(
        profiles_connectable_by(actor), pk=key_id(request.GET.get("profile", ""))
    )
    name = queue_name_suggest(policy=policy, profile=profile)
    form = ConnectForm(initial={"name": name}, profiles=())
    return render(request, "policies/queue_name.html", {"form": form, "suggested": name})


# permission: administrators, and those of the policy's tenant
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def policy_disconnect(request: HttpRequest, pk: int, queue_pk: int) -> HttpResponse:
    """Say what removing a profile does, and do it."""
    actor = require_policy_administrator(request)
    policy = _policy_or_404(actor, pk)
    queues = policy.queues.filter(removed_at__isnull=True).select_related("profile")
    queue = get_object_or_404(queues, pk=queue_pk)
    if request.method == "POST":
        returned = profile_disconnect(actor=actor, queue=queue)
        words = plural(returned, "waiting task became a draft", "waiting tasks became drafts")
        say(request, f"{queue.profile.name} is removed. {words}.")
        return redirect_to(request, reverse("policy_edit", args=[pk]))
    context = {
        "policy": policy,
        "queue": queue,
        "running": len(live_attempts(Q(queue=queue))),
        "waiting": waiting_by_queue([queue.pk])[queue.pk].count,
        "back": reverse("policy_edit", args=[pk]),
    }
    return page_or_dialog(request, "policies/disconnect.html", context)


# permission: administrators, and those of the policy's tenant
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def policy_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Say what deleting the policy does, ask for its name, and do it."""
    actor = require_policy_administrator(request)
    policy = _policy_or_404(actor, pk)
    form = DeleteForm(request.POST if request.method == "POST" else None, policy=policy)
    if request.method == "POST" and form.is_valid():
        try:
            policy_remove(actor=actor, policy=policy)
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, f"Policy {policy.name} is deleted.")
            return redirect_to(request, reverse("policy_list"))
    focus_first_error(form)
    queues = list(policy.queues.filter(removed_at__isnull=True).values_list("pk", flat=True))
    context = {
        "policy": policy,
        "form": form,
        "queues": len(queues),
        "running": len(live_attempts(Q(policy=policy))),
        "waiting": waiting_sum(waiting_by_queue(queues).values()).count,
        "back": reverse("policy_edit", args=[pk]),
    }
    status = 400 if request.method == "POST" else 200
    return page_or_dialog(request, "policies/delete.html", context, status=status)


# permission: administrators, and those of the policy's tenant
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def policy_pause_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask why, and let nothing of the policy start."""
    actor = require_policy_administrator(request)
    policy = _policy_or_404(actor, pk)
    running = len(live_attempts(Q(policy__in=policy_family(policy.pk))))
    return pause_page(
        request,
        thing=policy,
        what=policy.name,
        sentence=(
            "Nothing of it, or of the policies below it, starts until it is resumed. "
            f"{plural(running, 'running task goes', 'running tasks go')} on."
        ),
        back=reverse("policy_edit", args=[pk]),
        undo=lambda: undo_event(
            "policy.paused", policy, actor=actor, address=reverse("policy_resume", args=[pk])
        ),
        pause=lambda reason: policy_pause(actor=actor, policy=policy, reason=reason),
    )


# permission: administrators, and those of the policy's tenant
@require_POST
@login_required
def policy_resume_now(request: HttpRequest, pk: int) -> HttpResponse:
    """Lift the pause."""
    actor = require_policy_administrator(request)
    policy = _policy_or_404(actor, pk)
    if change_unless_stale(
        request, lambda undoes: policy_resume(actor=actor, policy=policy, undoes=undoes)
    ):
        say(request, f"{policy.name} starts tasks again.")
    return redirect("policy_edit", pk)


def _policy_or_404(actor: User, pk: int) -> Policy:
    """The policy, for those who may change it; for others there is no such page."""
    rows = policies_changeable_by(actor).select_related("group", "parent")
    return get_object_or_404(rows, pk=pk)


def _process_form(
    request: HttpRequest, form: forms.Form, *, preview: Callable[[], Effects], save: Callable[[], T]
) -> FormOutcome[T]:
    """Preview the change; save it when that was requested and it costs no task anything new."""
    if request.method != "POST":
        return FormOutcome()
    if not form.is_valid():
        focus_first_error(form)
        return FormOutcome(status=400)
    try:
        effects = preview()
        if "preview" in request.POST:
            return FormOutcome(effects=effects)
        if effects.lost > key_id(request.POST.get("confirmed", "")):
            return FormOutcome(effects=effects, needs_confirmation=True, status=409)
        return FormOutcome(saved=save(), effects=effects)
    except RpmError as error:
        add_errors(form, error)
        focus_first_error(form)
        return FormOutcome(status=400)


def _change(form: PolicyForm, *, actor: User, policy: Policy) -> Policy:
    """The policy with what the form changes; saving what is there already makes no revision."""
    changes = form.changes()
    return policy_change(actor=actor, policy=policy, changes=changes) if changes else policy


def _connect_if_valid(form: ConnectForm, connect: Callable[[], list[Queue]]) -> list[Queue]:
    if not form.is_bound:
        return []
    if form.is_valid():
        try:
            return connect()
        except RpmError as error:
            add_errors(form, error)
    focus_first_error(form)
    return []


@transaction.atomic
def _connect(form: ConnectForm, *, actor: User, policy: Policy) -> list[Queue]:
    """All of them or none: the further ones under the names that are suggested for them."""
    profile = Profile.objects.get(pk=form.cleaned_data["profile"])
    name = form.cleaned_data["name"]
    queues = [profile_connect(actor=actor, policy=policy, profile=profile, queue_name=name)]
    for other in Profile.objects.filter(pk__in=form.wanted_others()).order_by("position", "pk"):
        try:
            queues.append(profile_connect(actor=actor, policy=policy, profile=other))
        except RpmError as error:
            # The field of the name is that of the first.
            sentence = f"{other.name}: {error.detail}"
            error.fields = {"others": sentence}
            raise
    return queues
