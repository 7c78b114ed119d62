"""Background work of the whole installation."""

from celery import shared_task

from rpm import demonstration


@shared_task(name="rpm.keep_demonstration", ignore_result=True)
def keep_demonstration() -> None:
    """Keep the demonstration at work; does nothing where it is not loaded."""
    demonstration.tasks_replenish()
