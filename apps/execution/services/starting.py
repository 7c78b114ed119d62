"""Launching and stopping one member on its node."""

import time
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import structlog
from django.utils import timezone

from apps.execution.client import LaunchOutcome, NodeClient
from apps.execution.launching import MemberFacts, Moment, launch_request
from apps.execution.protocol.outcomes import (
    Answered,
    ImageMissing,
    Refused,
    StartFailed,
)
from apps.execution.protocol.requests import Pull, Stop
from apps.execution.selectors import member_facts
from apps.tasks.models import Holding
from apps.tasks.services.attempts import (
    Ended,
    back_off_s,
    member_claim_start,
    member_confirm_start,
    member_exited,
    member_release_start,
    member_started,
)

log = structlog.get_logger(__name__)

PULL_WAIT_S = 20.0
# Refusals after which the same launch can be tried again: nothing was started.
PASSING = frozenset({"late", "older_alive", "other_boot"})

# Images seen on a node since its connection was made: asking again costs an exchange per launch.
_present: WeakKeyDictionary[NodeClient, set[str]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class NodeClock:
    """The node's boot clock, read at `read_at` of this process's monotonic clock."""

    boot_id: str
    uptime_s: float
    read_at: float

    def now(self) -> Moment:
        return Moment(self.boot_id, self.uptime_s + time.monotonic() - self.read_at)


def member_launch(*, holding_id: int, client: NodeClient, clock: NodeClock, token: str) -> None:
    """Start one member; whatever comes of it is written down, and repeating is harmless."""
    if not member_claim_start(holding_id=holding_id, token=token):
        return
    holding = Holding.objects.select_related(
        "attempt__task__owner", "attempt__queue__profile", "node"
    ).get(pk=holding_id)
    facts = member_facts(holding, installation=client.installation)
    if not _pulled(holding, client, facts) or not member_confirm_start(holding_id=holding_id):
        return
    _launched(holding, client, facts, client.launch(launch_request(facts, clock.now())))


def _launched(
    holding: Holding, client: NodeClient, facts: MemberFacts, outcome: LaunchOutcome
) -> None:
    if isinstance(outcome, Answered):
        if outcome.answer.state == "running":
            member_started(holding_id=holding.pk, at=timezone.now())
        log.info("member.launched", task=facts.task_id, rank=facts.rank)
    elif isinstance(outcome, StartFailed | ImageMissing):
        _images_on(client).discard(facts.image)
        member_exited(holding_id=holding.pk, ended=Ended(exit_code=None, detail=outcome.detail))
        log.warning("member.start_failed", task=facts.task_id, detail=outcome.detail)
    elif isinstance(outcome, Refused):
        _refused(holding, outcome)
    else:
        # It may have arrived: the next report tells, or the window closes and it is tried again.
        log.warning("member.launch_unanswered", task=facts.task_id, detail=outcome.detail)
        if not outcome.may_have_arrived:
            _try_again(holding, outcome.detail)


def member_stop(*, holding: Holding, client: NodeClient) -> None:
    """Ask one member to end; its end arrives with a report."""
    attempt = holding.attempt
    outcome = client.stop(
        Stop(
            installation=client.installation,
            task_id=str(attempt.task_id),
            generation=attempt.generation,
            rank=holding.rank,
            grace_s=float(attempt.queue.grace_s),
        )
    )
    if isinstance(outcome, Answered) and outcome.answer.state == "absent":
        # Never launched there, and now it cannot be any more.
        member_exited(holding_id=holding.pk, ended=Ended(exit_code=None, detail="Never started."))
    elif not isinstance(outcome, Answered):
        log.warning("member.stop_unanswered", task=str(attempt.task_id), detail=outcome.detail)


def _pulled(holding: Holding, client: NodeClient, facts: MemberFacts) -> bool:
    """Whether the image is on the node; fetching it can take many exchanges, a stop ends it."""
    if facts.runtime == "process" or facts.image in _images_on(client):
        return True
    request = Pull(
        installation=client.installation,
        runtime=facts.runtime,
        image=facts.image,
        wait_s=PULL_WAIT_S,
    )
    while True:
        outcome = client.pull(request)
        if not isinstance(outcome, Answered):
            _try_again(holding, outcome.detail)
            return False
        if outcome.answer.state == "present":
            _images_on(client).add(facts.image)
            return True
        words = outcome.answer.progress
        if outcome.answer.state == "failed":
            member_exited(
                holding_id=holding.pk,
                ended=Ended(exit_code=None, detail=f"Image {facts.image}: {words}"),
            )
            return False
        if not member_confirm_start(
            holding_id=holding.pk, detail=f"Fetching the image. {words}".strip()
        ):
            return False


def _images_on(client: NodeClient) -> set[str]:
    return _present.setdefault(client, set())


def _refused(holding: Holding, outcome: Refused) -> None:
    if outcome.code in PASSING:
        _try_again(holding, outcome.detail)
        return
    log.error(
        "member.refused",
        task=str(holding.attempt.task_id),
        code=outcome.code,
        detail=outcome.detail,
    )
    words = f"The node refused it ({outcome.code}): {outcome.detail}"
    # A node that started anew has cleared the member away and fenced it: no fault of the task.
    is_lost = outcome.code == "ended"
    ended = Ended(exit_code=None, detail=words, is_lost=is_lost)
    member_exited(holding_id=holding.pk, ended=ended)


def _try_again(holding: Holding, detail: str) -> None:
    member_release_start(
        holding_id=holding.pk,
        delay_s=back_off_s(holding.attempt.start_failures),
        detail=detail,
    )
