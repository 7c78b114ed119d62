"""Background work: sums of usage, budgets, and what queues say of idle tasks."""

from contextlib import ExitStack

from celery import shared_task

from apps.tasks.services.idle_rules import idle_rules_apply
from apps.usage.services.budgets import budgets_update
from apps.usage.services.reservations import reservations_record
from apps.usage.services.sums import usage_book
from apps.usage.services.tiers import tiers_refresh


@shared_task(name="usage.book", ignore_result=True)
def book_usage() -> None:
    """See to idle tasks, tiers and reservations, book what attempts held, and see to budgets."""
    with ExitStack() as steps:
        # Each of them, whatever becomes of the others; the last one first.
        steps.callback(budgets_update)
        steps.callback(usage_book)
        steps.callback(tiers_refresh)
        steps.callback(reservations_record)
        idle_rules_apply()
