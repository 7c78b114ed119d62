"""Background work: remove expired rows."""

from celery import shared_task
from django.conf import settings

from apps.tasks.selectors.vaults import vault_versions_in_use
from apps.tasks.services.retention import expired_remove, retention_of
from apps.tasks.services.task_groups import empty_groups_remove
from apps.vaults.services.maintenance import vaults_remove_unused, vaults_store_data

# Of one run; the next one continues.
GROUPS_AT_ONCE = 5_000


@shared_task(name="tasks.remove_old", ignore_result=True)
def tasks_remove_old() -> None:
    """Remove for a bounded time; the next notification continues."""
    expired_remove(
        retention_of(
            logs_days=settings.KEEP_LOGS_DAYS,
            tasks_days=settings.KEEP_TASKS_DAYS,
            events_days=settings.KEEP_EVENTS_DAYS,
            task_bytes=settings.RPM_TASK_BYTES_PER_PERSON,
        )
    )
    empty_groups_remove(most=GROUPS_AT_ONCE)
    vaults_remove_unused(vault_versions_in_use())
    vaults_store_data()
