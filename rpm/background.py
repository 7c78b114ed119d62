"""Background work of the whole installation."""

from celery import shared_task

from apps.core import clock
from rpm import demonstration


@shared_task(name="rpm.keep_demonstration", ignore_result=True)
def keep_demonstration() -> None:
    """Keep the demonstration at work; does nothing where it is not loaded."""
    if demonstration.is_active():
        demonstration.samples_record(now=clock.now())
        demonstration.tasks_replenish()
