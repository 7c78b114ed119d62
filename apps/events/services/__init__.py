"""Adds to the log, seals the audit log, and notifies browsers."""

from apps.events.services.audit import audit_record
from apps.events.services.entries import NewEvent
from apps.events.services.events import event_record, events_record
from apps.events.services.undo import undo_check

__all__ = ["NewEvent", "audit_record", "event_record", "events_record", "undo_check"]
