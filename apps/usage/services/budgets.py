"""Keeps what is spent of budgets, and gives notice where little or nothing of one is left."""

from datetime import UTC, datetime

from django.conf import settings
from django.db import connection, transaction

from apps.core import clock
from apps.core.notifications import NOTIFY_ALLOCATION, after_commit
from apps.events.services import event_record
from apps.policies.budgets import SPENT_PERCENT, WARN_PERCENT, Budget, budget_of, month_of
from apps.policies.models import Policy, PolicySpending
from apps.policies.selectors import policy_families
from apps.usage.selectors.periods import UsagePeriod
from apps.usage.selectors.report import costs_of

NOTICES = {WARN_PERCENT: "policy.budget_low", SPENT_PERCENT: "policy.budget_spent"}
ROWS_AT_ONCE = 200


def budgets_update(*, now: datetime | None = None) -> int:
    """Store what each policy with a budget has cost in this month, with those below it.

    One event per month says that 80 % are spent, and one that all of it is; they come again only
    if the budget was raised. Passes are notified where tasks must wait, or may start again.

    Returns:
        How many events there were.
    """
    if now is None and clock.is_in_doubt():
        return 0
    at = (now or clock.now()).astimezone(UTC)
    rows = Policy.objects.filter(budget__isnull=False, removed_at__isnull=True)
    families = policy_families(rows.values_list("pk", flat=True))
    if not families:
        return 0
    concerned = {pk for family in families.values() for pk in family}
    costs = costs_of(concerned, UsagePeriod(month_of(at), at.date()), at)
    return _store({pk: sum(costs[one] for one in those) for pk, those in families.items()}, at)


@transaction.atomic
def _store(spent: dict[int, int], at: datetime) -> int:
    """Two runs at once come here one after the other."""
    PolicySpending.objects.bulk_create(
        [PolicySpending(policy_id=pk, at=at, noticed_budget=0) for pk in sorted(spent)],
        ignore_conflicts=True,
    )
    rows = PolicySpending.objects.filter(policy__in=spent).order_by("policy")
    if connection.features.has_select_for_update:
        rows = rows.select_for_update(no_key=True)
    locked = {row.policy_id: row for row in rows}
    # Read with the lock: what another run stored was of no later budget.
    policies = Policy.objects.filter(pk__in=locked, budget__isnull=False).order_by("pk")
    events = sum(_update(locked[one.pk], one, spent[one.pk], at) for one in policies)
    columns = ["at", "spent", "noticed", "noticed_budget"]
    PolicySpending.objects.bulk_update(locked.values(), columns, batch_size=ROWS_AT_ONCE)
    return events


def _update(row: PolicySpending, policy: Policy, spent: int, at: datetime) -> int:
    """Set the row, and record what has changed; returns how many events that were."""
    if at < row.at <= at + clock.MOST_AHEAD:
        # A run that began later was faster. After more than that a clock was wrong.
        return 0
    policy.spending, before, month = row, month_of(row.at), month_of(at)
    was_stopped = policy.budget_stops and budget_of(policy, before).is_spent
    if before < month:
        row.noticed = 0
    row.at, row.spent = at, spent
    budget = budget_of(policy, month)
    if was_stopped != (policy.budget_stops and budget.is_spent):
        after_commit(notify=[NOTIFY_ALLOCATION])
    reached = max((one for one in NOTICES if budget.percent >= one), default=0)
    if budget.amount > row.noticed_budget:
        row.noticed = min(row.noticed, reached)
    row.noticed_budget = budget.amount
    if reached <= row.noticed:
        return 0
    row.noticed = reached
    _record(budget, reached)
    return 1


def _record(budget: Budget, percent: int) -> None:
    event_record(
        NOTICES[percent],
        actor=None,
        object_type="policy",
        object_id=budget.policy,
        policy_id=budget.policy,
        data={
            "name": budget.name,
            "note": f"{budget.words} spent in {budget.month:%B}",
            "month": f"{budget.month:%Y-%m}",
            "percent": percent,
            "spent": f"{budget.spent:.4f}",
            "budget": f"{budget.amount:.4f}",
            "currency": settings.RPM_CURRENCY,
        },
        topics=[f"policy.{budget.policy}", "overview"],
    )
