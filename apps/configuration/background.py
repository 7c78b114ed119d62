"""Background work: remove revisions that are kept no longer."""

from celery import shared_task
from django.conf import settings

from apps.configuration.services.revision_retention import revisions_sweep


@shared_task(name="configuration.remove_old", ignore_result=True)
def configuration_remove_old() -> None:
    """A bounded number; the next call goes on."""
    revisions_sweep(most=settings.KEEP_REVISIONS)
