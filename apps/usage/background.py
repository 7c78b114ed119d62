"""Background work: sums of usage."""

from celery import shared_task

from apps.usage.services.sums import usage_book
from apps.usage.services.tiers import tiers_refresh


@shared_task(name="usage.book", ignore_result=True)
def book_usage() -> None:
    """Record tiers that changed, and book what attempts held."""
    try:
        tiers_refresh()
    finally:
        usage_book()
