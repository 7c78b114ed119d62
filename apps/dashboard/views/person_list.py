"""People for administrators: the list, invitations, and whether mail works."""

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts.links import join_address
from apps.accounts.models import PersonStatus
from apps.accounts.selectors import groups_visible_to, is_admin, people_managed_by
from apps.accounts.services.invitations import (
    invitation_renew,
    invitation_revoke,
    person_invite,
)
from apps.accounts.services.mail import MailSent, mail_is_set_up, mail_send_test
from apps.core.errors import RpmError
from apps.dashboard.access import require_administrator, require_people_administrator
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_people import InviteForm, TestMailForm
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.selectors.persons import (
    PersonFilter,
    headings,
    inactive_with_waiting_tasks,
    people_page,
)
from apps.dashboard.toasts import say


# permission: administrators, and those of a tenant for its people
@require_GET
@login_required
@never_cache
def person_list(request: HttpRequest) -> HttpResponse:
    """Everybody, searched, filtered and sorted as the address says."""
    actor = require_people_administrator(request)
    wanted = PersonFilter.parse(request.GET.dict())
    context = {
        "wanted": wanted,
        "page": people_page(actor, wanted),
        "headings": headings(wanted),
        "statuses": PersonStatus.choices,
        "groups": groups_visible_to(actor).order_by("name"),
        "sees_mail": is_admin(actor),
        "inactive_with_waiting_tasks": inactive_with_waiting_tasks(actor),
        "mail_server": settings.EMAIL_HOST,
    }
    return render(request, "settings/people.html", context)


# permission: administrators, and those of a tenant for its people
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def person_invite_page(request: HttpRequest) -> HttpResponse:
    """Ask who, and show the link once."""
    actor = require_people_administrator(request)
    form = InviteForm(request.POST if request.method == "POST" else None, actor=actor)
    invited = None
    if request.method == "POST" and form.is_valid():
        try:
            invited = person_invite(actor=actor, address=join_address(request), **form.cleaned_data)
        except RpmError as error:
            add_errors(form, error)
    focus_first_error(form)
    context = {
        "form": form,
        "invited": invited,
        "has_mail": mail_is_set_up(),
        "back": reverse("person_list"),
    }
    status = 400 if request.method == "POST" and invited is None else 200
    return page_or_dialog(request, "settings/invite.html", context, status=status)


# permission: administrators, and those of a tenant for its people
@require_POST
@login_required
@never_cache
def person_invitation(request: HttpRequest, pk: int) -> HttpResponse:
    """Make another link, in the place of the one before, and show it once."""
    actor = require_people_administrator(request)
    person = get_object_or_404(people_managed_by(actor), pk=pk)
    invited = invitation_renew(actor=actor, user=person, address=join_address(request))
    context = {
        "invited": invited,
        "has_mail": mail_is_set_up(),
        "back": reverse("person_detail", args=[pk]),
    }
    return page_or_dialog(request, "settings/invite.html", context)


# permission: administrators, and those of a tenant for its people
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def person_invitation_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Say what goes with the link, and let it work no more."""
    actor = require_people_administrator(request)
    person = get_object_or_404(people_managed_by(actor), pk=pk)
    if request.method == "POST":
        invitation_revoke(actor=actor, user=person)
        say(request, f"The invitation of {person} is revoked.")
        is_gone = person.is_pending
        return redirect_to(
            request, reverse("person_list") if is_gone else reverse("person_detail", args=[pk])
        )
    context = {"person": person, "back": reverse("person_detail", args=[pk])}
    return page_or_dialog(request, "settings/invitation_revoke.html", context)


# permission: administrators
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def person_test_mail(request: HttpRequest) -> HttpResponse:
    """Send a mail to see whether mail works; what the server says is shown."""
    actor = require_administrator(request)
    form = TestMailForm(
        request.POST if request.method == "POST" else None, initial={"to": actor.email}
    )
    outcome = None
    if request.method == "POST" and form.is_valid():
        outcome = mail_send_test(to=form.cleaned_data["to"])
    if isinstance(outcome, MailSent):
        say(request, f"{settings.EMAIL_HOST} took the mail.")
        return redirect_to(request, reverse("person_list"))
    context = {
        "form": form,
        "failure": outcome,
        "server": f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}",
        "sender": settings.DEFAULT_FROM_EMAIL,
        "back": reverse("person_list"),
    }
    if not mail_is_set_up():
        return redirect("person_list")
    status = 400 if request.method == "POST" else 200
    return page_or_dialog(request, "settings/test_mail.html", context, status=status)
