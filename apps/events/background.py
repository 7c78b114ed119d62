"""Background work: seal the audit log."""

from celery import shared_task

from apps.events.services.audit import SEAL
from apps.events.services.seals import audit_seal


@shared_task(name=SEAL, ignore_result=True)
def events_seal_audit() -> None:
    """Seal committed entries; running twice or late changes nothing."""
    audit_seal()
