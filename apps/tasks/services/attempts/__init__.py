"""The edges of an attempt on its nodes.

Every function is one transaction of conditional updates. A row that is not in the expected state
is left alone and the function returns that: the caller acts on an old state.
"""

from apps.tasks.services.attempts.ends import (
    MemberResult,
    attempt_end_unstarted,
    attempt_give_up,
    attempt_stop,
    member_end_unsent,
    member_note_exit,
    members_acknowledge,
)
from apps.tasks.services.attempts.gangs import member_note_ready, members_not_ready
from apps.tasks.services.attempts.images import ImageIdentity, attempt_note_image
from apps.tasks.services.attempts.silence import attempt_suspect, attempt_unsuspect
from apps.tasks.services.attempts.starts import (
    BACK_OFF_S,
    MOST_BACK_OFF_S,
    LaunchRecord,
    back_off_s,
    member_claim_start,
    member_confirm_start,
    member_keep_start,
    member_note_start,
    member_release_start,
)
from apps.tasks.services.attempts.vaults import attempt_note_vaults

__all__ = [
    "BACK_OFF_S",
    "MOST_BACK_OFF_S",
    "ImageIdentity",
    "LaunchRecord",
    "MemberResult",
    "attempt_end_unstarted",
    "attempt_give_up",
    "attempt_note_image",
    "attempt_note_vaults",
    "attempt_stop",
    "attempt_suspect",
    "attempt_unsuspect",
    "back_off_s",
    "member_claim_start",
    "member_confirm_start",
    "member_end_unsent",
    "member_keep_start",
    "member_note_exit",
    "member_note_ready",
    "member_note_start",
    "member_release_start",
    "members_acknowledge",
    "members_not_ready",
]
