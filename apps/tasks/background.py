"""Background work: remove what is kept no longer."""

from celery import shared_task
from django.conf import settings

from apps.tasks.selectors.vaults import vaults_in_use
from apps.tasks.services.retention import kept_of, old_remove
from apps.vaults.services.keeping import vaults_read, vaults_sweep


@shared_task(name="tasks.remove_old", ignore_result=True)
def tasks_remove_old() -> None:
    """A bounded part of it; the next ring goes on."""
    old_remove(
        kept_of(
            logs_days=settings.KEEP_LOGS_DAYS,
            tasks_days=settings.KEEP_TASKS_DAYS,
            events_days=settings.KEEP_EVENTS_DAYS,
            task_bytes=settings.RPM_TASK_BYTES_PER_PERSON,
        )
    )
    vaults_sweep(vaults_in_use())
    vaults_read()
