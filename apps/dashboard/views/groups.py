"""Groups for administrators: description, members, and what a group is used by."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts.models import User
from apps.accounts.selectors import groups_visible_to
from apps.accounts.services.groups import (
    group_members_add,
    group_members_remove,
    group_remove,
    group_save,
)
from apps.configuration.group_usage import group_counts, group_usage
from apps.core.errors import RpmError
from apps.dashboard.access import require_people_administrator
from apps.dashboard.cards.words import plural
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_people import GroupForm, chosen_people
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.selectors.groups import (
    MOST_FOUND,
    group_members_page,
    group_row,
    groups_page,
    leave_preview,
    people_to_add,
)
from apps.dashboard.toasts import say

MOST_CHARS = 200


# permission: administrators, and those of a tenant for its groups
@require_GET
@login_required
@never_cache
def group_list(request: HttpRequest) -> HttpResponse:
    """Groups by name."""
    actor = require_people_administrator(request)
    word = _word(request, "search")
    page = groups_page(actor, word=word, after=_word(request, "after"))
    return render(request, "settings/groups.html", {"page": page, "word": word})


# permission: administrators, and those of a tenant for its groups
@require_GET
@login_required
@never_cache
def group_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """One group: its members, people to add, and what it is used by."""
    actor = require_people_administrator(request)
    group = _group_or_404(actor, pk)
    add = _word(request, "add")
    found = people_to_add(actor, group, add)
    members = group_members_page(
        group, word=_word(request, "search"), after=_word(request, "after")
    )
    group.people = members.count  # type: ignore[attr-defined]  # as the list annotates it
    context = {
        "row": group_row(group, group_counts([group.pk], reader=actor)),
        "used_by": group_usage(group, reader=actor),
        "members": members,
        "word": _word(request, "search"),
        "add": add,
        "found": found[:MOST_FOUND],
        "has_more": len(found) > MOST_FOUND,
    }
    return render(request, "settings/group.html", context)


# permission: administrators, and those of a tenant for its groups
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def group_new(request: HttpRequest) -> HttpResponse:
    """Create a group without members."""
    return _form_page(request, Group(), back=reverse("group_list"))


# permission: administrators, and those of a tenant for its groups
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def group_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Another name or description."""
    group = _group_or_404(require_people_administrator(request), pk)
    return _form_page(request, group, back=reverse("group_detail", args=[pk]))


# permission: administrators, and those of a tenant for its groups
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def group_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Say what keeps the group, or what vanishes with it, and remove it."""
    actor = require_people_administrator(request)
    group = _group_or_404(actor, pk)
    back = reverse("group_detail", args=[pk])
    if request.method == "POST":
        name = group.name
        group_remove(actor=actor, group=group)
        say(request, f"Group {name} is deleted.")
        return redirect_to(request, reverse("group_list"))
    people = User.objects.filter(groups=group).count()
    context = {
        "group": group,
        "people": people,
        "used_by": group_usage(group, reader=actor),
        "back": back,
    }
    return page_or_dialog(request, "settings/group_delete.html", context)


# permission: administrators, and those of a tenant for its groups
@require_POST
@login_required
def group_add(request: HttpRequest, pk: int) -> HttpResponse:
    """Let those in who are chosen."""
    actor = require_people_administrator(request)
    group = _group_or_404(actor, pk)
    people = chosen_people(actor, request.POST.getlist("person"))
    if not people:
        return _nobody_selected(request, group)
    count = group_members_add(actor=actor, group=group, users=people)
    say(request, f"{plural(count, 'person is', 'people are')} in {group.name} now.")
    return redirect("group_detail", pk)


# permission: administrators, and those of a tenant for its groups
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def group_leave(request: HttpRequest, pk: int) -> HttpResponse:
    """Say what becomes of the waiting tasks of those who are chosen, and take them out."""
    actor = require_people_administrator(request)
    group = _group_or_404(actor, pk)
    given = request.POST if request.method == "POST" else request.GET
    people = chosen_people(actor, given.getlist("person"))
    if not people:
        return _nobody_selected(request, group)
    if request.method == "POST":
        count = group_members_remove(actor=actor, group=group, users=people)
        words = plural(count, "person has", "people have")
        say(request, f"{words} left {group.name}.")
        return redirect_to(request, reverse("group_detail", args=[pk]))
    context = {
        "group": group,
        "people": people,
        "preview": leave_preview(group, [person.pk for person in people]),
        "back": reverse("group_detail", args=[pk]),
    }
    return page_or_dialog(request, "settings/group_leave.html", context)


def _nobody_selected(request: HttpRequest, group: Group) -> HttpResponse:
    messages.error(request, "Select at least one person first.")
    return redirect_to(request, reverse("group_detail", args=[group.pk]))


def _form_page(request: HttpRequest, group: Group, *, back: str) -> HttpResponse:
    actor = require_people_administrator(request)
    info = getattr(group, "info", None)
    initial = {"name": group.name, "description": info.description if info is not None else ""}
    is_built_in = info is not None and info.is_built_in
    form = GroupForm(
        request.POST if request.method == "POST" else None, initial=initial, keeps_name=is_built_in
    )
    name = group.name
    if request.method == "POST" and form.is_valid():
        group.name = form.cleaned_data["name"]
        try:
            group_save(actor=actor, group=group, description=form.cleaned_data["description"])
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, f"Group {group.name} is saved.")
            return redirect_to(request, reverse("group_detail", args=[group.pk]))
    focus_first_error(form)
    status = 400 if request.method == "POST" else 200
    context = {"form": form, "name": name, "back": back}
    return page_or_dialog(request, "settings/group_form.html", context, status=status)


def _group_or_404(actor: User, pk: int) -> Group:
    return get_object_or_404(groups_visible_to(actor).select_related("info"), pk=pk)


def _word(request: HttpRequest, name: str) -> str:
    return request.GET.get(name, "").replace("\0", "").strip()[:MOST_CHARS]
