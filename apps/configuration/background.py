"""Background work: remove old revisions."""

from celery import shared_task
from django.conf import settings

from apps.configuration.services.revision_retention import revisions_remove_old


@shared_task(name="configuration.remove_old", ignore_result=True)
def configuration_remove_old() -> None:
    """Remove a bounded number of revisions; the next call continues."""
    revisions_remove_old(most=settings.KEEP_REVISIONS)
