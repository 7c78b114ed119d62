"""Background work: sums of usage, budgets, and what queues say of idle tasks."""

from celery import shared_task

from apps.usage.services.runs import usage_run


@shared_task(name="usage.book", ignore_result=True)
def book_usage() -> None:
    """Once a minute."""
    usage_run()
