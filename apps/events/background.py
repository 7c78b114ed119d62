"""Background work: seal the audit log."""

from celery import shared_task

from apps.events.services.auditing import SEAL
from apps.events.services.sealing import audit_seal


@shared_task(name=SEAL, ignore_result=True)
def events_seal_audit() -> None:
    """Seal what has committed; doubled or late without harm."""
    audit_seal()
