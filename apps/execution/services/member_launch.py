"""Launching and stopping one member on its node.

What is written here is written as the process that serves the node (`as_server`): the answer to a
launch may come when another process has long taken over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import structlog
from django.conf import settings
from django.utils import timezone

from apps.core.crash_points import crash_point
from apps.core.errors import BadInput
from apps.core.images import ImageName
from apps.core.keyring import CannotUnseal
from apps.execution.client import LaunchOutcome, NodeClient
from apps.execution.container_specs import LAUNCH_WINDOW_S, container_spec, with_master_port
from apps.execution.leases import NodeClock, first_lease
from apps.execution.protocol.outcomes import (
    Answered,
    ImageMissing,
    NodeRefusal,
    StartFailed,
)
from apps.execution.protocol.requests import ContainerSpec, LaunchRequest, StopRequest
from apps.execution.selectors import maintenance_left_s
from apps.execution.services.image_fetch import (
    FetchDeferred,
    FetchRunning,
    ImageReady,
    ImageRequest,
    ImageUnavailable,
    image_digest_forget,
    image_fetch,
)
from apps.execution.services.node_ownership import NotServing, as_server
from apps.execution.services.preflight import node_preflight_again, preflight_note
from apps.policies.images import is_allowed
from apps.policies.models.policies import OnNodeLoss
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Member
from apps.tasks.services.attempts.ends import attempt_give_up
from apps.tasks.services.attempts.images import ImageIdentity, attempt_note_image
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.attempts.vaults import attempt_note_vaults
from apps.tasks.services.members.exits import member_note_exit
from apps.tasks.services.members.gangs import member_note_ready
from apps.tasks.services.members.launch import (
    LaunchRecord,
    back_off_s,
    member_claim_start,
    member_confirm_start,
    member_keep_start,
    member_note_start,
    member_release_start,
)
from apps.vaults.selectors.effective import VaultGone

log = structlog.get_logger(__name__)

# Refusals after which the same launch can be tried again: nothing was started.
PASSING = frozenset({"disk_full", "late", "older_alive", "other_boot"})
# Refusals of a launch that others have overtaken: they say nothing of what the node can start.
_FENCE_CODES = frozenset({"ended", "fenced"})
# A start that the node cannot carry out for so many times counts as a try that failed.
START_TRIES = 10
# A registry that is away for longer than some three minutes, likewise: devices wait meanwhile.
REGISTRY_TRIES = 6


@dataclass(frozen=True, slots=True)
class MemberStart:
    """One member that this process launches; `fetch` is what the node last said of its image."""

    member: Member
    client: NodeClient
    spec: ContainerSpec
    token: str
    fetch: FetchRunning | None = None

    @property
    def node_id(self) -> int:
        return self.member.node_id or 0

    @property
    def task_id(self) -> str:
        return str(self.member.attempt.task_id)


def member_launch(
    *, member_id: int, client: NodeClient, clock: NodeClock, token: str
) -> MemberStart | None:
    """Start one member and store the outcome. Can be repeated: the node starts it once.

    Returns:
        The start while its node fetches the image, for `member_launch_continue`.
    """
    node_id = Member.objects.values_list("node_id", flat=True).get(pk=member_id) or 0
    try:
        with as_server(node_id, token):
            if not member_claim_start(member_id=member_id, token=token):
                return None
        crash_point("launch.claimed")
        start = _start_of(member_id, client, token)
    except NotServing:
        log.info("member.left_to_another_process", member=member_id)
        return None
    return None if start is None else member_launch_continue(start, client=client, clock=clock)


def member_launch_continue(
    start: MemberStart, *, client: NodeClient, clock: NodeClock
) -> MemberStart | None:
    """Go on with a start whose image was being fetched. Returns as `member_launch` does."""
    start = replace(start, client=client)
    try:
        fetched = _image_ready(start)
        if isinstance(fetched, FetchRunning):
            return replace(start, fetch=fetched)
        if fetched is None:
            return None
        crash_point("launch.pulled")
        # While an image is fetched, vaults, permissions and secrets change.
        now = _start_of(start.member.pk, client, start.token) if start.fetch else start
        if now is not None:
            _launch(now, clock, fetched)
    except NotServing:
        log.info("member.left_to_another_process", member=start.member.pk)
    return None


def _start_of(member_id: int, client: NodeClient, token: str) -> MemberStart | None:
    """What is launched now; None when it cannot be known, and the attempt ends so."""
    member = Member.objects.select_related(
        *("attempt__task__owner", "attempt__queue__profile", "attempt__pool"),
        *("attempt__policy", "node"),
    ).get(pk=member_id)
    spec = _spec(member, token)
    return None if spec is None else MemberStart(member, client, spec, token)


def _launch(start: MemberStart, clock: NodeClock, fetched: ImageReady) -> None:
    spec = _together(start)
    if spec is None:
        return
    moment = clock.now()
    lease_until_s = _lease(start.member, clock)
    with as_server(start.node_id, start.token):
        if not member_confirm_start(
            member_id=start.member.pk,
            token=start.token,
            launching=LaunchRecord(moment.boot_id, lease_until_s),
        ):
            return
    crash_point("launch.leased")
    attempt, image = start.member.attempt, fetched.image
    request = LaunchRequest(
        installation=start.client.installation,
        task_id=start.task_id,
        generation=attempt.generation,
        rank=start.member.rank,
        boot_id=moment.boot_id,
        not_after_s=moment.uptime_s + LAUNCH_WINDOW_S,
        lease_until_s=lease_until_s,
        spec=msgspec.structs.replace(spec, digest=image.digest, image_id=image.image_id),
    )
    outcome = start.client.launch(request)
    crash_point("launch.answered")
    if fetched.was_known and isinstance(outcome, ImageMissing):
        # It was there and has been removed since: no fault of the task.
        _exited(start, MemberResult(exit_code=None, detail=outcome.detail, is_unfit=True))
        return
    _launched(start, outcome)
    crash_point("launch.noted")


def _together(start: MemberStart) -> ContainerSpec | None:
    """What to launch a member with; None: of a gang, others are not so far, and it waits."""
    if start.member.attempt.replicas == 1 or start.member.launched_at is not None:
        return start.spec
    with as_server(start.node_id, start.token):
        port = member_note_ready(member_id=start.member.pk, token=start.token)
    return None if port is None else with_master_port(start.spec, port)


def _spec(member: Member, token: str) -> ContainerSpec | None:
    """What the member runs; None when it cannot be known, and the attempt ends so."""
    attempt, is_unfit = member.attempt, False
    with as_server(member.node_id or 0, token):
        used = attempt_note_vaults(attempt_id=attempt.pk)
    attempt.vaults = used
    try:
        spec = container_spec(member)
    except CannotUnseal as error:
        problem = f"Its secrets cannot be read. {error}"
    except VaultGone as error:
        # Of a gang whose other members have begun: no fault of the task, which starts again.
        problem, is_unfit = error.detail, True
    except BadInput as error:
        problem = error.detail
    else:
        # The list may have changed since the task was enqueued.
        problem = _image_problem(spec, attempt.pool.allowed_images)
        if not problem:
            return spec
    ended = MemberResult(exit_code=None, detail=problem, is_unfit=is_unfit)
    with as_server(member.node_id or 0, token):
        if member.launched_at is None:
            member_note_exit(member_id=member.pk, ended=ended)
        else:
            # An earlier launch may have arrived: what it holds is released when its node has
            # stopped it.
            target = TaskState.QUEUED if is_unfit else ""
            attempt_give_up(attempt_id=attempt.pk, detail=problem, target=target)
    return None


def _image_problem(spec: ContainerSpec, patterns: Sequence[str]) -> str:
    """Why the node cannot start a container of this image; empty where it needs none, or can."""
    if spec.runtime == "process":
        return ""
    if not spec.image:
        return f"image is missing: its node starts containers ({spec.runtime}) only. Name one."
    if is_allowed(ImageName.parse(spec.image), patterns):
        return ""
    return f"Image {spec.image} is not allowed in its pool, only: {', '.join(patterns)}."


def _lease(member: Member, clock: NodeClock) -> float | None:
    """Until when the node may run it unheard; None: it runs until it ends.

    A granted lease is never shortened or removed: the queue may have changed.
    """
    before = member.lease_until_s if member.boot_id == clock.boot_id else None
    if before is None and member.attempt.queue.on_node_loss == OnNodeLoss.WAIT:
        return None
    until = first_lease(clock, lease_s=settings.LEASE_S, at_least_s=maintenance_left_s())
    return max(until, before or 0.0)


def _launched(start: MemberStart, outcome: LaunchOutcome) -> None:
    member_id, task = start.member.pk, start.task_id
    if isinstance(outcome, Answered):
        if outcome.answer.state == "running":
            with as_server(start.node_id, start.token):
                member_note_start(member_id=member_id, at=timezone.now())
        log.info("member.launched", task=task, rank=start.member.rank)
    elif isinstance(outcome, StartFailed | ImageMissing):
        _not_started(start, outcome.detail)
        log.warning("member.start_failed", task=task, detail=outcome.detail)
    elif isinstance(outcome, NodeRefusal):
        _refused(start, outcome)
    else:
        # It may have arrived. The same launch is sent again when the node answers; it starts once.
        log.warning("member.launch_unanswered", task=task, detail=outcome.detail)
        _try_again(start, outcome.detail, delay_s=0, is_unsent=not outcome.may_have_arrived)


def _not_started(start: MemberStart, detail: str) -> None:
    """End the member: by the task's own fault, unless its node starts no task at all."""
    if not _is_nodes_own(start):
        _exited(start, MemberResult(exit_code=None, detail=detail))


def _is_nodes_own(start: MemberStart) -> bool:
    """Whether the node starts no task at all; the member has ended by no fault of its task then."""
    node = start.member.node
    if node is None:
        return False
    problem = node_preflight_again(node, start.client)
    with as_server(start.node_id, start.token):
        preflight_note(start.node_id, problem)
    if problem:
        detail = f"Its node cannot start tasks: {problem}"
        _exited(start, MemberResult(exit_code=None, detail=detail, is_unfit=True))
    return bool(problem)


def _exited(start: MemberStart, ended: MemberResult) -> None:
    if start.spec.image:
        image_digest_forget(start.client, ImageName.parse(start.spec.image))
    with as_server(start.node_id, start.token):
        member_note_exit(member_id=start.member.pk, ended=ended)


def _image_ready(start: MemberStart) -> ImageReady | FetchRunning | None:
    """The image on the node; None: the member is not launched now, and it is written down why."""
    attempt = start.member.attempt

    def keep(words: str) -> bool:
        with as_server(start.node_id, start.token):
            return member_keep_start(member_id=start.member.pk, token=start.token, detail=words)

    def note(image: ImageIdentity) -> ImageIdentity:
        with as_server(start.node_id, start.token):
            return attempt_note_image(attempt_id=attempt.pk, image=image)

    spec = start.spec
    if spec.runtime == "process" or not spec.image:
        return ImageReady(ImageIdentity())
    # What other members, or an earlier launch of this one, found the image to be.
    noted = ImageIdentity(attempt.image_digest, attempt.image_id)
    image = ImageName.parse(spec.image)
    wanted = ImageRequest(image, spec.runtime, attempt.policy.group_id, noted, start.fetch)
    outcome = image_fetch(start.client, wanted, keep=keep, note=note)
    if isinstance(outcome, ImageUnavailable | FetchDeferred):
        _image_unavailable(start, outcome)
    return outcome if isinstance(outcome, ImageReady | FetchRunning) else None


def _image_unavailable(start: MemberStart, outcome: ImageUnavailable | FetchDeferred) -> None:
    """Go on by the cause: the runtime, the registry, or the task itself."""
    if isinstance(outcome, ImageUnavailable) and outcome.is_runtimes:
        _not_started(start, outcome.detail)
    elif isinstance(outcome, ImageUnavailable):
        _exited(start, MemberResult(exit_code=None, detail=outcome.detail))
    elif not outcome.is_registrys:
        _try_again(start, outcome.detail)
    # A runtime without its daemon has the same words as a registry that is away.
    elif not _is_nodes_own(start):
        _try_again(start, outcome.detail, tries=REGISTRY_TRIES)


def _refused(start: MemberStart, outcome: NodeRefusal) -> None:
    if outcome.code in PASSING:
        _try_again(start, outcome.detail)
        return
    log.error(
        "member.refused",
        task=start.task_id,
        code=outcome.code,
        detail=outcome.detail,
    )
    words = f"The node refused it ({outcome.code}): {outcome.detail}"
    if outcome.code not in _FENCE_CODES:
        _not_started(start, words)
        return
    # A node that booted again has removed the member and fenced it: no fault of the task.
    is_lost = outcome.code == "ended"
    # Nor that its node has heard of a later admission, from a database that was restored since.
    is_unfit = outcome.code == "fenced"
    _exited(start, MemberResult(exit_code=None, detail=words, is_lost=is_lost, is_unfit=is_unfit))


def _try_again(
    start: MemberStart,
    detail: str,
    *,
    delay_s: float | None = None,
    is_unsent: bool = False,
    tries: int = START_TRIES,
) -> None:
    attempt = start.member.attempt
    with as_server(start.node_id, start.token):
        member_release_start(
            member_id=start.member.pk,
            token=start.token,
            delay_s=back_off_s(attempt.start_failures) if delay_s is None else delay_s,
            detail=detail,
            is_unsent=is_unsent and start.member.launched_at is None,
        )
        if attempt.start_failures + 1 >= tries and delay_s is None:
            words = f"It could not be started in {tries} tries: {detail}"
            attempt_give_up(attempt_id=attempt.pk, detail=words)


def member_stop(*, member: Member, client: NodeClient, token: str) -> None:
    """Ask one member to end; its end arrives with a report."""
    attempt = member.attempt
    crash_point("stop.sending")
    outcome = client.stop(
        StopRequest(
            installation=client.installation,
            task_id=str(attempt.task_id),
            generation=attempt.generation,
            rank=member.rank,
            grace_s=float(attempt.queue.grace_s),
        )
    )
    crash_point("stop.answered")
    if not isinstance(outcome, Answered):
        log.warning("member.stop_unanswered", task=str(attempt.task_id), detail=outcome.detail)
        return
    if outcome.answer.state == "absent":
        # Never launched there, and now it cannot be any more.
        with as_server(member.node_id or 0, token):
            member_note_exit(member_id=member.pk, ended=MemberResult(None, "Never started."))
