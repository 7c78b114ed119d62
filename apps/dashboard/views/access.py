"""Access rules: who may do what on which object; and the explanation of a permission."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Rule, Target
from apps.access.rules.selectors import rule_by_key, sees_rules, target_of
from apps.access.selectors import policies_restrictable_by
from apps.accounts.models import User
from apps.configuration.access_explanation import ObjectKind
from apps.configuration.services.preview import tasks_returned_by_restriction
from apps.configuration.services.restrictions import policy_restrict, policy_unrestrict
from apps.configuration.services.rules import rule_change, rule_grant, rule_remove
from apps.core.errors import NotFound, RpmError, Stale
from apps.dashboard.access import person
from apps.dashboard.forms import add_errors, focus_first_error
from apps.dashboard.forms_access import (
    PERMITTED,
    ExplainForm,
    RestrictionForm,
    RuleForm,
    named_target,
)
from apps.dashboard.layout import page_or_dialog, redirect_to
from apps.dashboard.selectors.access import AccessQuery, access_page, explain, permission_rows
from apps.dashboard.toasts import say
from apps.policies.models import Policy


# permission: administrators, and for what they manage those who manage something
@require_GET
@login_required
@never_cache
def access_list(request: HttpRequest) -> HttpResponse:
    """Rules by kind and name of their object."""
    actor = _rules_reader(request)
    wanted = AccessQuery.parse(request.GET.dict())
    context = {
        "page": access_page(actor, wanted),
        "wanted": wanted,
        "kinds": RuleKind.choices,
        "levels": Level.choices,
    }
    return render(request, "settings/access.html", context)


# permission: administrators, for what they manage those who manage something, owners of a task
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def access_new(request: HttpRequest) -> HttpResponse:
    """A new rule; where there is one on that level, its people are joined."""
    actor = person(request)
    given = request.POST if request.method == "POST" else request.GET
    named = named_target(actor, given.get("target", ""))
    if named is None or named.kind is not RuleKind.TASK:
        _rules_reader(request)
    form = RuleForm(request.POST or None, actor=actor, target=named)
    if request.method == "POST" and form.is_valid():
        kind, object_id = form.chosen_target()
        target = target_of(actor, kind, object_id)
        if target is None:
            raise Http404
        try:
            rule_grant(
                actor=actor, target=target, level=form.chosen_level(), subjects=form.subjects()
            )
        except RpmError as error:
            add_errors(form, _at_users(error))
        else:
            say(request, "Rule created. It takes effect with the next request.")
            return redirect_to(request, _page_of(target))
    return _form_page(request, form, rule=None, target=named)


# permission: administrators, for what they manage those who manage something, owners of a task
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def access_edit(request: HttpRequest, key: str) -> HttpResponse:
    """Other people, other groups, another level: all of the rule at once."""
    actor = person(request)
    rule = _rule_or_404(actor, key)
    form = RuleForm(request.POST or None, actor=actor, rule=rule)
    if request.method == "POST" and form.is_valid():
        try:
            rule_change(
                actor=actor,
                target=rule.target,
                level=rule.level,
                new_level=form.chosen_level(),
                subjects=form.subjects(),
                version=form.cleaned_data["version"],
            )
        except RpmError as error:
            add_errors(form, _at_users(error))
        else:
            say(request, "Rule saved. It takes effect with the next request.")
            return redirect_to(request, _page_of(rule.target))
    return _form_page(request, form, rule=rule, target=rule.target)


# permission: administrators, for what they manage those who manage something, owners of a task
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def access_remove(request: HttpRequest, key: str) -> HttpResponse:
    """Say who loses what, and take the rule away."""
    actor = person(request)
    rule = _rule_or_404(actor, key)
    problem = ""
    if request.method == "POST":
        version = request.POST.get("version", "")
        try:
            rule_remove(actor=actor, target=rule.target, level=rule.level, version=version)
        except Stale as error:
            problem = error.detail
        else:
            say(request, "Rule removed.")
            return redirect_to(request, _page_of(rule.target))
    context = {
        "rule": rule,
        "permitted": PERMITTED[rule.target.kind][rule.level],
        "problem": problem,
        "back": _page_of(rule.target),
    }
    status = 400 if problem else 200
    return page_or_dialog(request, "settings/access_remove.html", context, status=status)


# permission: administrators, and those who manage the policy
@require_http_methods(["GET", "POST"])
@login_required
@never_cache
def access_restrict(request: HttpRequest, pk: int) -> HttpResponse:
    """The people that a policy applies to: its whole group, or some of it."""
    actor = person(request)
    policy = get_object_or_404(policies_restrictable_by(actor).select_related("group"), pk=pk)
    form = RestrictionForm(request.POST or None, actor=actor, policy=policy)
    returned: list[tuple[User, int]] = []
    if request.method == "POST" and form.is_valid():
        returned = _returned_tasks(actor, policy, form)
        if not returned or form.is_confirmed:
            try:
                _restrict(request, actor, policy, form)
            except Stale as error:
                returned = []
                add_errors(form, error)
            else:
                return redirect_to(request, reverse("policy_detail", args=[pk]))
    context = {
        "policy": policy,
        "form": form,
        "returned": returned,
        "returned_tasks": sum(count for _, count in returned),
        "back": reverse("policy_detail", args=[pk]),
    }
    status = 400 if form.is_bound and form.errors else 200
    return page_or_dialog(request, "settings/access_restrict.html", context, status=status)


# permission: every signed-in user, about themselves; about others as `explanation` allows
@require_GET
@login_required
@never_cache
def access_explain(request: HttpRequest) -> HttpResponse:
    """What a person can see and do with one object, and why."""
    viewer = person(request)
    given = request.GET.dict()
    form = ExplainForm(given if "object" in given else None, initial=given)
    explanation = None
    if form.is_bound and form.is_valid():
        values = form.cleaned_data
        try:
            explanation = explain(
                viewer,
                user=values["user"],
                thing=ObjectKind(values["kind"]),
                named=values["object"],
            )
        except NotFound as error:
            add_errors(form, error)
    context = {
        "form": form,
        "explanation": explanation,
        "permissions": permission_rows(explanation) if explanation else (),
    }
    return render(request, "settings/access_explain.html", context)


def _rules_reader(request: HttpRequest) -> User:
    """A user who sees rules; for others the page does not exist."""
    actor = person(request)
    if not sees_rules(actor):
        raise Http404
    return actor


def _rule_or_404(actor: User, key: str) -> Rule:
    """A rule that people made; for others it does not exist."""
    rule = rule_by_key(actor, key)
    if rule is None or rule.by_policy:
        raise Http404
    return rule


def _page_of(target: Target | None) -> str:
    """Where the rules of the target are shown: those of a task on its page."""
    if target is not None and target.kind is RuleKind.TASK:
        return reverse("task_detail", args=[target.object_id])
    return reverse("access_list")


def _form_page(
    request: HttpRequest, form: RuleForm, *, rule: Rule | None, target: Target | None
) -> HttpResponse:
    focus_first_error(form)
    context = {
        "form": form,
        "rule": rule,
        "is_of_task": target is not None and target.kind is RuleKind.TASK,
        "back": _page_of(target),
    }
    status = 400 if request.method == "POST" else 200
    return page_or_dialog(request, "settings/access_form.html", context, status=status)


def _at_users(error: RpmError) -> RpmError:
    """Show errors about the subjects at the names."""
    if "subjects" in error.fields:
        error.fields = {**error.fields, "users": error.fields["subjects"]}
    return error


def _returned_tasks(actor: User, policy: Policy, form: RestrictionForm) -> list[tuple[User, int]]:
    """Whose waiting tasks would become drafts."""
    if not form.is_restricting:
        return []
    people = form.wanted()
    return tasks_returned_by_restriction(actor=actor, policy=policy, people=people)


def _restrict(request: HttpRequest, actor: User, policy: Policy, form: RestrictionForm) -> None:
    version = form.cleaned_data["version"]
    if form.is_restricting:
        people = form.wanted()
        policy_restrict(actor=actor, policy=policy, people=people, version=version)
        say(request, f"Policy {policy.name} applies to {len(people)} of its group.")
    else:
        policy_unrestrict(actor=actor, policy=policy, version=version)
        say(request, f"Policy {policy.name} applies to its whole group.")
