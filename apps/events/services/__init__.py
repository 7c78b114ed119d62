"""Adding to the log, sealing the audit log, and telling browsers."""

from apps.events.services.auditing import audit_record
from apps.events.services.entries import Entry
from apps.events.services.recording import event_record, events_record

__all__ = ["Entry", "audit_record", "event_record", "events_record"]
