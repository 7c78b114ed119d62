"""Events, and the audit log: who did what, in a chain that shows every change of it."""

from apps.events.models.audit import GENESIS, AuditChain, AuditEntry
from apps.events.models.events import Event

__all__ = ["GENESIS", "AuditChain", "AuditEntry", "Event"]
