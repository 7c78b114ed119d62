"""The background work on usage, for every process that does such work."""

from contextlib import ExitStack
from functools import partial

from apps.core import clock
from apps.tasks.services.idle_rules import idle_rules_apply
from apps.usage.models import UsageRun
from apps.usage.services.budgets import budgets_update
from apps.usage.services.reservations import reservations_record
from apps.usage.services.sums import RUN_S, usage_book
from apps.usage.services.tiers import tiers_refresh


def usage_run(*, run_s: float = RUN_S) -> None:
    """See to idle tasks, tiers and reservations, book what attempts held, and see to budgets.

    Args:
        run_s: about as long as attempts are booked; the next run continues.
    """
    with ExitStack() as steps:
        # Each of them, whatever becomes of the others; the last one first.
        steps.callback(budgets_update)
        steps.callback(partial(usage_book, run_s=run_s))
        steps.callback(tiers_refresh)
        steps.callback(reservations_record)
        idle_rules_apply()
    if not clock.is_in_doubt():
        UsageRun.objects.update_or_create(id=1, defaults={"at": clock.now()})
