"""Budgets: what a policy may cost in a calendar month (UTC), and what of it is spent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from typing import Any

from django.conf import settings

from apps.policies.models import Policy, PolicySpending

# Costs are counted in millionths of the currency.
COST_PARTS = 1_000_000
WARN_PERCENT, SPENT_PERCENT = 80, 100
BUDGET_COLUMNS = ("budget", "budget_stops", "spending__at", "spending__spent")
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Budget:
    """That of one policy, in the currency; `spent` is of `month`, of which this is the first day.

    `stops`: no task starts once it is spent.
    """

    policy: int
    name: str
    amount: Decimal
    stops: bool
    month: date
    spent: Decimal

    @property
    def percent(self) -> int:
        """What of it is spent, rounded down."""
        return int(self.spent * 100 // self.amount)

    @property
    def is_spent(self) -> bool:
        return self.percent >= SPENT_PERCENT

    @property
    def is_low(self) -> bool:
        """At 80 % there is a warning."""
        return self.percent >= WARN_PERCENT

    @property
    def words(self) -> str:
        """`812.30 of 1,000.00 EUR`. What is spent is rounded down: it never reads as all of it."""
        spent = self.spent.quantize(_CENT, ROUND_DOWN)
        return f"{spent:,.2f} of {self.amount:,.2f} {settings.RPM_CURRENCY}"

    @property
    def sentence(self) -> str:
        """How it stands, and what that means for tasks."""
        text = f"Budget of {self.name} for {self.month:%B}: {self.words} spent."
        if not self.stops:
            return text
        if self.is_spent:
            return f"{text} Tasks wait until 1 {next_month(self.month):%B}, or until it is raised."
        return f"{text} Once it is spent, no more tasks start."


def decimal_text(amount: Decimal) -> str:
    """Without zeros at its end: `1000` or `0.5`."""
    return f"{amount.normalize():f}"


def month_of(at: datetime) -> date:
    """The first day of its calendar month, in UTC."""
    return at.astimezone(UTC).date().replace(day=1)


def next_month(month: date) -> date:
    """The first day of the month after it."""
    return (month + timedelta(days=31)).replace(day=1)


def budgets_at(at: datetime, policies: Iterable[int] | None = None) -> dict[int, Budget]:
    """The budgets of the month of `at`, by id of the policy, in the order of policies; one query.

    Args:
        policies: only of these; None: of all.
    """
    month = month_of(at)
    rows = Policy.objects.filter(budget__isnull=False, removed_at__isnull=True)
    if policies is not None:
        rows = rows.filter(pk__in=list(policies))
    return {row.pk: budget_of(row, month) for row in rows.select_related("spending")}


def is_stopped(month: date, columns: Sequence[Any]) -> bool:
    """Whether no task may start in a month, by the values of `BUDGET_COLUMNS` of a policy."""
    budget, stops, at, spent = columns
    if budget is None or not stops or at is None or month_of(at) != month:
        return False
    return bool(spent >= budget * COST_PARTS)


def budget_of(policy: Policy, month: date) -> Budget:
    """That of a policy that has one; its spending is loaded with it, or by one query."""
    spending: PolicySpending | None = getattr(policy, "spending", None)
    spent = spending.spent if spending is not None and month_of(spending.at) == month else 0
    amount = policy.budget or Decimal(0)
    return Budget(
        policy.pk, policy.name, amount, policy.budget_stops, month, Decimal(spent) / COST_PARTS
    )
