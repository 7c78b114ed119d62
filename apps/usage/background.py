"""Background work: sums of usage."""

from celery import shared_task

from apps.usage.services.roll_up import hours_close
from apps.usage.services.tiers import tiers_update


@shared_task(name="usage.sum_up", ignore_result=True)
def usage_sum_up() -> None:
    """Record tiers that changed, and sum up the hours that are over."""
    tiers_update()
    hours_close()
