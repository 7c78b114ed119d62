"""One person for administrators: account, permissions and current tasks."""

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts.models import User
from apps.accounts.selectors import people_managed_by, people_visible_to
from apps.accounts.services.credentials import credential_revoke
from apps.accounts.services.people_changes import (
    person_activate,
    person_change,
    person_deactivate,
    person_leave_waiting,
)
from apps.core.errors import RpmError
from apps.dashboard.access import require_people_administrator
from apps.dashboard.cards.words import plural
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_people import PersonForm
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.selectors.persons import person_facts
from apps.dashboard.toasts import say
from apps.tasks.services.stop import owner_tasks_dequeue


# permission: administrators, and those of a tenant for its people
@require_GET
@login_required
@never_cache
def person_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """The page of a person."""
    actor = require_people_administrator(request)
    rows = people_visible_to(actor).select_related("invitation")
    person = get_object_or_404(rows, pk=pk)
    context = {
        "person": person,
        "facts": person_facts(person, reader=actor),
        "may_manage": people_managed_by(actor).filter(pk=pk).exists(),
    }
    return render(request, "settings/person.html", context)


# permission: administrators, and those of a tenant for its people
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def person_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Names, address and groups."""
    actor = require_people_administrator(request)
    person = _person_or_404(actor, pk)
    given = request.POST if request.method == "POST" else None
    form = PersonForm(given, actor=actor, person=person)
    if request.method == "POST" and form.is_valid():
        changes = dict(form.cleaned_data)
        groups = changes.pop("groups")
        try:
            person_change(actor=actor, user=person, changes=changes, groups=groups)
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, f"{changes['username']} is saved.")
            return redirect_to(request, reverse("person_detail", args=[pk]))
    focus_first_error(form)
    facts = person_facts(person, reader=actor)
    context = {
        "form": form,
        "person": person,
        "facts": facts,
        "back": reverse("person_detail", args=[pk]),
    }
    status = 400 if request.method == "POST" else 200
    return page_or_dialog(request, "settings/person_edit.html", context, status=status)


# permission: administrators, and those of a tenant for its people
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def person_deactivate_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Say what ends and what stays, and what becomes of what waits."""
    actor = require_people_administrator(request)
    person = _person_or_404(actor, pk)
    if request.method == "POST":
        person_deactivate(actor=actor, user=person)
        words = f"{person} is deactivated."
        choice = request.POST.get("waiting", "")
        if choice:
            words = f"{words} {_decide(actor, person, choice)}"
        say(request, words)
        return redirect_to(request, reverse("person_detail", args=[pk]))
    context = {
        "person": person,
        "facts": person_facts(person, reader=actor),
        "is_self": person.pk == actor.pk,
        "back": reverse("person_detail", args=[pk]),
    }
    return page_or_dialog(request, "settings/person_deactivate.html", context)


# permission: administrators, and those of a tenant for its people
@require_POST
@login_required
def person_activate_now(request: HttpRequest, pk: int) -> HttpResponse:
    """Let the person sign in again."""
    actor = require_people_administrator(request)
    person = person_activate(actor=actor, user=_person_or_404(actor, pk))
    say(request, f"{person} may sign in again. Credentials stay revoked.")
    return redirect("person_detail", pk)


# permission: administrators, and those of a tenant for its people
@require_POST
@login_required
def person_waiting(request: HttpRequest, pk: int) -> HttpResponse:
    """Decide on the waiting tasks of a deactivated person: dequeue them, or leave them queued."""
    actor = require_people_administrator(request)
    person = _person_or_404(actor, pk)
    say(request, _decide(actor, person, request.POST.get("waiting", "")))
    return redirect("person_detail", pk)


# permission: administrators, and those of a tenant for its people
@require_POST
@login_required
def person_credential_revoke(request: HttpRequest, pk: int, key_pk: int) -> HttpResponse:
    """Refuse one of the person's credentials from the next request on."""
    actor = require_people_administrator(request)
    credential = get_object_or_404(_person_or_404(actor, pk).credentials, pk=key_pk)
    credential_revoke(credential=credential, actor=actor, is_admin=True)
    say(request, f"Credential “{credential.label}” is revoked.")
    return redirect("person_detail", pk)


def _decide(actor: User, person: User, choice: str) -> str:
    if choice == "take_out":
        count = owner_tasks_dequeue(actor=actor, owner=person)
        return f"{plural(count, 'waiting task became a draft', 'waiting tasks became drafts')}."
    person_leave_waiting(actor=actor, user=person)
    return "The waiting tasks stay queued."


def _person_or_404(actor: User, pk: int) -> User:
    """A person whose account the actor manages; others have no such page."""
    return get_object_or_404(people_managed_by(actor).select_related("invitation"), pk=pk)
