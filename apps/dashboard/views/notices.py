"""The notices of a user, and the rules that they follow from."""

from collections.abc import Callable

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts.models import User
from apps.accounts.selectors import time_zone_of
from apps.accounts.services.mail import mail_is_set_up
from apps.core.errors import RpmError
from apps.dashboard.access import person
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_notices import NoticeMailForm, NoticeRuleForm
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.live import key_id
from apps.dashboard.toasts import say
from apps.notices.models import NoticeKind, NoticeRule
from apps.notices.selectors import mail_address, rules_visible_to, settings_of
from apps.notices.services.read_marks import notices_mark_read
from apps.notices.services.rules import (
    MOST_RULES,
    notice_rule_change,
    notice_rule_create,
    notice_rule_remove,
)
from apps.notices.services.settings import notice_settings_change


# permission: every signed-in user, for their own notices
@require_GET
@login_required
@never_cache
def notice_list(request: HttpRequest) -> HttpResponse:
    """The newest ones, or those before the one that `before` names."""
    before = request.GET.get("before", "")
    if before and not key_id(before):
        raise Http404
    context = {"before": before, "has_rules": rules_visible_to(person(request)).exists()}
    return render(request, "pages/notice_list.html", context)


# permission: every signed-in user, for their own notices
@require_POST
@login_required
def notice_mark_read(request: HttpRequest) -> HttpResponse:
    """Mark one notice, or all, as read."""
    given = request.POST.get("id", "")
    notices_mark_read(user=person(request), ids=[key_id(given)] if given else None)
    return redirect_to(request, reverse("notice_list"))


# permission: every signed-in user, for their own rules
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def notice_rule_list(request: HttpRequest) -> HttpResponse:
    """The rules, what each notifies of, and the form for e-mail."""
    user = person(request)
    mail = settings_of(user)
    form = NoticeMailForm(request.POST if request.method == "POST" else None, row=mail)
    if request.method == "POST" and form.is_valid():
        try:
            notice_settings_change(user=user, changes=form.cleaned_data)
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, "The settings are saved.")
            return redirect_to(request, reverse("notice_rule_list"))
    focus_first_error(form)
    rules = rules_visible_to(user)
    context = {
        "rows": [(rule, [NoticeKind(one).label for one in rule.kinds]) for rule in rules],
        "most": MOST_RULES,
        "form": form,
        "mail": mail,
        "has_server": mail_is_set_up(),
        "address": mail_address(user),
        "zone": time_zone_of(user),
    }
    status = 400 if request.method == "POST" else 200
    return render(request, "settings/notice_rules.html", context, status=status)


# permission: every signed-in user, for their own rules
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def notice_rule_new(request: HttpRequest) -> HttpResponse:
    """Add a rule."""
    user = person(request)
    form = NoticeRuleForm(request.POST if request.method == "POST" else None, user=user, rule=None)
    return _form_page(request, form, lambda: notice_rule_create(user=user, **form.cleaned_data))


# permission: every signed-in user, for their own rules
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def notice_rule_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Change what a rule notifies of."""
    user = person(request)
    rule = _rule_or_404(user, pk)
    given = request.POST if request.method == "POST" else None
    form = NoticeRuleForm(given, user=user, rule=rule)
    return _form_page(
        request,
        form,
        lambda: notice_rule_change(user=user, rule=rule, changes=form.cleaned_data),
        rule=rule,
    )


# permission: every signed-in user, for their own rules
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def notice_rule_remove_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Say what ends with it; then remove it."""
    user, back = person(request), reverse("notice_rule_list")
    rule = _rule_or_404(user, pk)
    if request.method == "POST":
        notice_rule_remove(user=user, rule=rule)
        say(request, "The rule is removed.")
        return redirect_to(request, back)
    return page_or_dialog(request, "settings/notice_rule_remove.html", {"rule": rule, "back": back})


def _form_page(
    request: HttpRequest,
    form: NoticeRuleForm,
    save: Callable[[], object],
    *,
    rule: NoticeRule | None = None,
) -> HttpResponse:
    back = reverse("notice_rule_list")
    if request.method == "POST" and form.is_valid():
        try:
            save()
        except RpmError as error:
            add_errors(form, error)
        else:
            say(request, "The rule is saved.")
            return redirect_to(request, back)
    focus_first_error(form)
    context = {"form": form, "back": back, "rule": rule}
    status = 400 if request.method == "POST" else 200
    return page_or_dialog(request, "settings/notice_rule_form.html", context, status=status)


def _rule_or_404(user: User, pk: int) -> NoticeRule:
    return get_object_or_404(rules_visible_to(user), pk=pk)
