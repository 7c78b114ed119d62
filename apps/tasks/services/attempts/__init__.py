"""What happens to an attempt on its nodes, written down edge by edge.

Every function is one transaction of conditional updates. A row that is not in the expected state
is left alone and the function says so: whoever asked acts on old news.
"""

from apps.tasks.services.attempts.finishing import (
    Ended,
    attempt_end_unstarted,
    attempt_give_up,
    attempt_stop,
    member_end_unsent,
    member_exited,
    members_acknowledged,
)
from apps.tasks.services.attempts.gangs import member_ready, members_not_ready
from apps.tasks.services.attempts.images import Image, attempt_note_image
from apps.tasks.services.attempts.silence import attempt_suspect, attempt_unsuspect
from apps.tasks.services.attempts.starting import (
    BACK_OFF_S,
    MOST_BACK_OFF_S,
    Launching,
    back_off_s,
    member_claim_start,
    member_confirm_start,
    member_keep_start,
    member_release_start,
    member_started,
)
from apps.tasks.services.attempts.vaults import attempt_note_vaults

__all__ = [
    "BACK_OFF_S",
    "MOST_BACK_OFF_S",
    "Ended",
    "Image",
    "Launching",
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
    "member_exited",
    "member_keep_start",
    "member_ready",
    "member_release_start",
    "member_started",
    "members_acknowledged",
    "members_not_ready",
]
