"""What there is to do on nodes, and the facts for doing it."""

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from apps.execution.launching import MemberFacts
from apps.execution.protocol.requests import GivenDevice, GivenVolume, RuntimeName
from apps.nodes.models import Device, NodeState, Volume
from apps.policies.models import Profile
from apps.tasks.models import Attempt, Holding
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState


def members_to_launch(node_ids: Iterable[int]) -> QuerySet[Holding]:
    """Allocated members on these nodes whose room is free and whose time has come."""
    blockers = Attempt.blocked_by.through.objects.filter(
        to_attempt__state__in=LIVE_ATTEMPT_STATES
    ).values("from_attempt_id")
    now = timezone.now()
    return (
        Holding.objects.filter(
            Q(attempt__not_before__isnull=True) | Q(attempt__not_before__lte=now),
            node__in=list(node_ids),
            state=MemberState.ALLOCATED,
            released_at__isnull=True,
            attempt__state__in=[AttemptState.ALLOCATED, AttemptState.STARTING],
        )
        .exclude(attempt__in=blockers)
        .order_by("attempt_id", "rank")
    )


def members_to_stop(node_ids: Iterable[int]) -> QuerySet[Holding]:
    """Members on these nodes that have not ended although their attempt is to stop."""
    return (
        Holding.objects.filter(
            node__in=list(node_ids),
            released_at__isnull=True,
            attempt__state=AttemptState.STOPPING,
        )
        .exclude(state=MemberState.EXITED)
        .select_related("attempt__queue")
        .order_by("attempt_id", "rank")
    )


def attempts_over_time() -> list[tuple[UUID, int]]:
    """Running attempts that have used up the time limit of their task, with that limit in s."""
    now = timezone.now()
    limited = Attempt.objects.filter(
        state=AttemptState.RUNNING, started_at__isnull=False, task__time_limit_s__isnull=False
    )
    rows = limited.values_list("pk", "started_at", "task__time_limit_s")
    return [
        (pk, limit_s)
        for pk, started_at, limit_s in rows
        if started_at is not None
        and limit_s is not None
        and now - started_at >= timedelta(seconds=limit_s)
    ]


def attempts_stranded() -> list[UUID]:
    """Attempts that nobody has begun to launch, and whose node cannot be reached.

    Many wait for those who have to leave their room first; their node may never tell of it.
    """
    return list(
        Attempt.objects.filter(
            state=AttemptState.ALLOCATED,
            holdings__node__state__in=[NodeState.SUSPECT, NodeState.REFUSED],
        )
        .order_by("pk")
        .distinct()
        .values_list("pk", flat=True)
    )


def attempts_never_started() -> list[UUID]:
    """Attempts that are to stop and of which nothing was ever launched."""
    launched = [MemberState.STARTING, MemberState.RUNNING, MemberState.EXITED]
    return list(
        Attempt.objects.filter(state=AttemptState.STOPPING)
        .exclude(holdings__state__in=launched)
        .values_list("pk", flat=True)
    )


def member_facts(holding: Holding, *, installation: str) -> MemberFacts:
    """Everything that a launch needs. `holding` with attempt, task, owner, queue and node."""
    attempt, task, node = holding.attempt, holding.attempt.task, holding.node
    if node is None:
        raise ValueError(f"member {holding.pk} has no node")
    profile: Profile = attempt.queue.profile
    runtime: RuntimeName = node.runtime  # type: ignore[assignment]  # the column's choices
    return MemberFacts(
        installation=installation,
        task_id=str(task.pk),
        generation=attempt.generation,
        rank=holding.rank,
        world_size=attempt.replicas,
        runtime=runtime,
        allows_process=node.allows_process,
        account=int(node.report.get("account", 0)),
        image=task.image,
        command=tuple(task.command),
        environment=dict(task.environment),
        working_dir=task.working_dir,
        amounts=dict(holding.amounts),
        devices=_given_devices(holding),
        volumes=_given_volumes(task.volumes),
        shm_mb=profile.shm_mb,
        uid=task.owner.unix_uid,
        gid=task.owner.unix_gid,
        host_network=profile.host_network,
        read_only_root=profile.read_only_root,
        master_address=_master_address(attempt),
    )


def _given_devices(holding: Holding) -> tuple[GivenDevice, ...]:
    indices = [index for index, _ in holding.devices]
    rows = Device.objects.filter(node=holding.node, index__in=indices).order_by("index")
    return tuple(GivenDevice(uuid=device.uuid, cdi=device.cdi) for device in rows)


def _given_volumes(names: list[str]) -> tuple[GivenVolume, ...]:
    rows = Volume.objects.filter(name__in=names, removed_at__isnull=True).order_by("name")
    return tuple(
        GivenVolume(source=row.path, target=f"/volumes/{row.name}", read_only=row.is_read_only)
        for row in rows
    )


def _master_address(attempt: Attempt) -> str:
    if attempt.replicas == 1:
        return ""
    first = attempt.holdings.select_related("node").get(rank=0)
    return (first.node.address or "127.0.0.1") if first.node else ""
