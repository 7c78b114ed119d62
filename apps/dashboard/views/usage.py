"""Usage over time: what the policies that the person sees held, and what of it was lost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from typing import Any, Self
from urllib.parse import parse_qs, urlencode

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from apps.access.selectors import (
    policies_visible_to,
    pools_visible_to,
    profiles_visible_to,
    queues_visible_to,
)
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core import clock
from apps.core.errors import BadInput
from apps.dashboard.access import person
from apps.dashboard.cards.usage_report import chart_of, table_of, totals
from apps.dashboard.cards.words import duration_text
from apps.dashboard.live import day_of, key_id
from apps.dashboard.selectors.idle_tasks import MINUTES, IdleQuery
from apps.policies.budgets import Budget, budgets_at
from apps.usage.exports import csv_response
from apps.usage.selectors.idle_attempts import idle_attempts
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.periods import DEFAULT_DAYS, UsagePeriod
from apps.usage.selectors.report import (
    HOUR,
    HOURLY_DAYS,
    UsageReport,
    usage_report,
)

SPANS = (HOURLY_DAYS, 7, DEFAULT_DAYS, 91)
# As many warnings fit above the report.
MOST_BUDGETS = 10
NAMES = {
    UsageGroup.POLICY: "Policy",
    UsageGroup.POOL: "Pool",
    UsageGroup.MODEL: "GPU model",
    UsageGroup.TIER: "Tier",
    UsageGroup.PROFILE: "Profile",
    UsageGroup.QUEUE: "Queue",
    UsageGroup.OWNER: "Owner",
}
# What has a filter in the list of tasks.
_SEEN: Mapping[UsageGroup, Callable[[User], "QuerySet[Any]"]] = {
    UsageGroup.POOL: pools_visible_to,
    UsageGroup.PROFILE: profiles_visible_to,
    UsageGroup.QUEUE: queues_visible_to,
}
MOST_IDLE = 10


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """What the form asks for; what is no day, group or pool is left out.

    `problem`: why the days of the form are not those of the report, which has the usual ones then.
    """

    period: UsagePeriod
    by: UsageGroup = UsageGroup.POLICY
    pool: int | None = None
    since: str = ""
    until: str = ""
    problem: str = ""

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string such as `since=2026-03-01&until=2026-03-31&by=pool`."""
        given = {key: values[-1].strip() for key, values in parse_qs(query).items()}
        since, until, problem = given.get("since", ""), given.get("until", ""), ""
        try:
            period = UsagePeriod.parse(day_of(since), day_of(until))
        except BadInput as error:
            period, problem = UsagePeriod.parse(None, None), error.detail
        by = given.get("by", "")
        group = UsageGroup(by) if by in set(UsageGroup) else UsageGroup.POLICY
        pool = (key_id(given.get("pool", "")) or None) if group.has_pools else None
        if not problem:
            since, until = str(period.first), str(period.last)
        return cls(period, group, pool, since, until, problem)

    def query(self, period: UsagePeriod | None = None) -> str:
        """As a query string, or that of another period."""
        wanted = period or self.period
        values = {"since": wanted.first, "until": wanted.last, "by": self.by.value}
        return urlencode(values | ({"pool": self.pool} if self.pool else {}))

    def report(self, user: User) -> UsageReport:
        """A pool that the person does not see is left out."""
        is_seen = self.pool and pools_visible_to(user).filter(pk=self.pool).exists()
        return usage_report(user, self.period, self.by, pool=self.pool if is_seen else None)


# permission: every signed-in user, for the policies that they see
@require_GET
@login_required
@never_cache
def usage_page(request: HttpRequest) -> HttpResponse:
    """A chart by day and a table, for any period."""
    user = person(request)
    wanted = UsageQuery.parse(request.META.get("QUERY_STRING", ""))
    report = wanted.report(user)
    days = wanted.period.days * timedelta(days=1)
    after = UsagePeriod(wanted.period.first + days, wanted.period.last + days)
    context = {
        "wanted": wanted,
        "query": wanted.query(),
        "spans": [
            (span, wanted.query(UsagePeriod.last_days(span)), _is_last(wanted.period, span))
            for span in SPANS
        ],
        "months": [
            (name, wanted.query(month), wanted.period == month)
            for name, month in _months(clock.now().astimezone(UTC).date())
        ],
        "earlier": wanted.query(wanted.period.before),
        "later": wanted.query(after) if wanted.period.is_over else "",
        "groups": [(group.value, NAMES[group]) for group in UsageGroup],
        "name": NAMES[wanted.by],
        "step": "hour" if report.step == HOUR else "day",
        "pools": pools_visible_to(user).order_by("name") if wanted.by.has_pools else [],
        "totals": totals(report),
        "idle": [] if wanted.period.is_over else idle_attempts(user)[:MOST_IDLE],
        "budgets": _low_budgets(user),
        "chart": chart_of(report),
        "table": table_of(report, _links(user, report)),
        "is_empty": not report.total["held"] and not report.total["admitted"],
    }
    return render(request, "pages/usage.html", context)


# permission: every signed-in user, for the policies that they see
@require_GET
@login_required
@never_cache
def usage_export(request: HttpRequest) -> HttpResponse:
    """The lines of the table as a file."""
    wanted = UsageQuery.parse(request.META.get("QUERY_STRING", ""))
    return csv_response(wanted.report(person(request)))


def _low_budgets(user: User) -> list[Budget]:
    """Of the policies that the person sees, those that are spent first."""
    found = budgets_at(clock.now(), policies_visible_to(user).values_list("pk", flat=True))
    low = [one for one in found.values() if one.is_low]
    return sorted(low, key=lambda one: -one.percent)[:MOST_BUDGETS]


# permission: every signed-in user, for the tasks that they see
@require_GET
@login_required
@never_cache
def idle_list(request: HttpRequest) -> HttpResponse:
    """Tasks that hold GPUs without using them, filtered; those who may abort one do it here."""
    user = person(request)
    wanted = IdleQuery.parse(request.META.get("QUERY_STRING", ""))
    context = {
        "wanted": wanted,
        "query": wanted.query(),
        "idle": wanted.tasks(user),
        "queues": queues_visible_to(user).order_by("name"),
        "policies": policies_visible_to(user),
        "times": [(minutes, duration_text(minutes * 60)) for minutes in MINUTES],
    }
    return render(request, "usage/idle.html", context)


def _links(user: User, report: UsageReport) -> dict[Any, str]:
    """Where the lines lead: to a page of a policy, or to the tasks, as far as the person sees it.

    What was removed, models and tiers have no page.
    """
    keys = [one.key for one in report.lines if one.key]
    if report.by is UsageGroup.POLICY:
        rows = policies_visible_to(user).filter(pk__in=keys).values_list("pk", flat=True)
        return {pk: reverse("policy_detail", args=[pk]) for pk in rows}
    if report.by is UsageGroup.OWNER:
        own = {user.pk: f"{reverse('task_list')}?{urlencode({'view': 'all', 'mine': '1'})}"}
        people = {pk: reverse("person_detail", args=[pk]) for pk in keys} if is_admin(user) else {}
        return {**people, **own}
    seen = _SEEN.get(report.by)
    if seen is None:
        return {}
    shown = seen(user).filter(pk__in=keys).values_list("pk", flat=True)
    tasks, name = reverse("task_list"), report.by.value
    return {pk: f"{tasks}?{urlencode({'view': 'all', name: pk})}" for pk in shown}


def _months(today: date) -> list[tuple[str, UsagePeriod]]:
    """The present month up to today, and the one before."""
    first = today.replace(day=1)
    last = first - timedelta(days=1)
    before = UsagePeriod(last.replace(day=1), last)
    return [("This month", UsagePeriod(first, today)), ("Last month", before)]


def _is_last(period: UsagePeriod, span: int) -> bool:
    return period == UsagePeriod.last_days(span)
