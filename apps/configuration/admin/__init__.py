"""Admin classes of the draft, the live configuration, policies and queues."""

from apps.configuration.admin.draft import DraftPoolAdmin, DraftProfileAdmin, DraftStateAdmin
from apps.configuration.admin.live import PoolAdmin, ProfileAdmin, RevisionAdmin
from apps.configuration.admin.policies import PolicyAdmin
from apps.configuration.admin.queues import QueueAdmin

__all__ = [
    "DraftPoolAdmin",
    "DraftProfileAdmin",
    "DraftStateAdmin",
    "PolicyAdmin",
    "PoolAdmin",
    "ProfileAdmin",
    "QueueAdmin",
    "RevisionAdmin",
]
