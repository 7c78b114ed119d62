"""What the server checks in every pass, next to launching and stopping: it finds what is due."""

import time
from collections.abc import Mapping

from django.conf import settings

from apps.execution.leases import granted_s
from apps.execution.node_server.loop import NodeLoop
from apps.execution.selectors import (
    attempts_over_time,
    attempts_stranded,
    attempts_to_suspect,
    attempts_to_unsuspect,
    gangs_torn,
    members_switched_off,
    members_to_release,
    members_unsent,
)
from apps.execution.services.lease_renewal import leases_expire
from apps.execution.services.node_ownership import NotServing, as_server
from apps.execution.services.node_removal import nodes_remove_drained
from apps.execution.services.restore_detection import restore_settle
from apps.nodes.models import Node
from apps.nodes.services import drift_note
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.services.attempts.ends import attempt_stop, attempt_withdraw
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.attempts.silence import attempt_suspect, attempt_unsuspect
from apps.tasks.services.members.exits import member_end_unsent, member_note_exit
from apps.tasks.services.members.launch import member_release_start

STRANDED = "Its node fell silent before it started."
# A lease that was just renewed cannot be over sooner, as a part of its length.
NOT_BEFORE = 0.6
NEVER_S = 60.0
CHECK_AGAIN_S = 0.5
# What pools have is compared with what is configured so often.
DRIFT_EVERY_S = 5.0


class PeriodicChecks:
    """The checks of one process; several may run them, and each state change happens once."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._compared_at = float("-inf")

    def run_checks(self, loops: Mapping[int, NodeLoop]) -> float:
        """Do all that is due; seconds until the next lease may be over."""
        next_s = self._leases(loops)
        self._switched_off(loops)
        for attempt_id in attempts_to_suspect():
            # Its name could name a pool that the owner does not see.
            words = "Its node is silent: it may still be running there."
            attempt_suspect(attempt_id=attempt_id, detail=words)
        for attempt_id in attempts_to_unsuspect():
            attempt_unsuspect(attempt_id=attempt_id)
        for member_id, token in members_to_release(loops, token=self._token):
            member_release_start(member_id=member_id, token=token, delay_s=0, detail=STRANDED)
        for attempt_id in attempts_stranded():
            attempt_withdraw(attempt_id=attempt_id, detail=STRANDED)
        for attempt_id, words in gangs_torn(settings.GANG_START_S):
            attempt_stop(attempt_id=attempt_id, target=TaskState.QUEUED, detail=words)
        nodes_remove_drained()
        for member_id in members_unsent():
            member_end_unsent(member_id=member_id)
        for attempt_id, limit_s in attempts_over_time():
            words = f"Its time limit of {limit_s} s is over."
            attempt_stop(attempt_id=attempt_id, target=TaskState.FAILED, detail=words)
        restore_settle()
        self._drift()
        return next_s

    def _drift(self) -> None:
        if time.monotonic() - self._compared_at >= DRIFT_EVERY_S:
            self._compared_at = time.monotonic()
            drift_note()

    def _leases(self, loops: Mapping[int, NodeLoop]) -> float:
        """Judge the leases of nodes that have been silent for so long that some may be over.

        Where this process was too busy to ask, it asks first: the node may have a result.
        """
        soonest = NEVER_S
        shortest_s = granted_s(settings.LEASE_S) * NOT_BEFORE
        for node_id, loop in loops.items():
            last_clock = loop.last_clock
            silent_s = time.monotonic() - last_clock.read_at
            if loop.is_over or silent_s < shortest_s:
                continue
            if not loop.is_unanswered:
                soonest = min(soonest, CHECK_AGAIN_S)
                continue
            try:
                left_s = leases_expire(Node.objects.get(pk=node_id), last_clock, self._token)
            except NotServing:
                continue
            soonest = min(soonest, NEVER_S if left_s is None else left_s)
        return soonest

    def _switched_off(self, loops: Mapping[int, NodeLoop]) -> None:
        words = "node_loss: the node was declared switched off."
        for member_id, node_id in members_switched_off(loops):
            try:
                with as_server(node_id, self._token):
                    # Again, now that its answer would have to wait.
                    if Node.objects.filter(pk=node_id, off_at__isnull=False).exists():
                        ended = MemberResult(None, words, is_lost=True)
                        member_note_exit(member_id=member_id, ended=ended)
            except NotServing:
                continue
