"""Background work: run the pass."""

from celery import shared_task

from apps.allocation.services import run_pass


@shared_task(name="allocation.run_pass", ignore_result=True)
def allocation_run_pass() -> None:
    """Look at the database now; lost, doubled or late without harm."""
    run_pass(waits=True)
