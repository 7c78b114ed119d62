"""What is due on nodes, and the facts for a launch."""

import socket
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.core import clock
from apps.core.images import ImageName
from apps.core.units import MILLI
from apps.execution.launch_requests import MemberFacts
from apps.execution.protocol.requests import (
    AbortCallbackSpec,
    AllocatedDevice,
    RuntimeName,
    VolumeMount,
)
from apps.nodes.models import Device, Installation, Node, NodeState, Runtime, Volume
from apps.policies.extra_permissions import extra_permissions_of
from apps.policies.models import Profile
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.selectors.attempts import resumption_of
from apps.tasks.selectors.vaults import launch_inputs, vault_refs_of
from apps.tasks.services.attempts.images import ImageIdentity
from apps.tasks.services.members.gangs import PORTS, members_not_ready
from apps.tasks.services.members.launch import MOST_BACK_OFF_S

UNREACHED_STATES = (NodeState.SUSPECT, NodeState.REFUSED)


def members_to_launch(node_ids: Iterable[int], *, token: str) -> QuerySet[Member]:
    """Members on these nodes whose capacity is free and which are due, with their owners.

    Args:
        token: the process that asks, which serves these nodes. What another one had begun to
            launch there is to be launched again: the node starts it at most once.
    """
    blockers = Attempt.blocked_by.through.objects.filter(
        to_attempt__state__in=LIVE_ATTEMPT_STATES
    ).values("from_attempt_id")
    now = clock.now()
    # A time that lies further ahead than any back-off comes from a clock that has jumped.
    latest = now + timedelta(seconds=MOST_BACK_OFF_S)
    return (
        Member.objects.filter(
            Q(attempt__not_before__isnull=True)
            | Q(attempt__not_before__lte=now)
            | Q(attempt__not_before__gt=latest),
            Q(state=MemberState.ALLOCATED) | Q(state=MemberState.STARTING) & ~Q(lock_token=token),
            node__in=list(node_ids),
            released_at__isnull=True,
            attempt__state__in=[AttemptState.ALLOCATED, AttemptState.STARTING],
        )
        .exclude(attempt__in=blockers)
        # Members of a gang whose node is ready wait for the others.
        .exclude(
            Exists(members_not_ready().filter(attempt=OuterRef("attempt"))),
            ready_at__isnull=False,
            launched_at__isnull=True,
        )
        .select_related("attempt__task")
        .only("node", "rank", "ready_at", "attempt__task__owner")
        .order_by("attempt_id", "rank")
    )


def members_to_stop(node_ids: Iterable[int]) -> QuerySet[Member]:
    """Members on these nodes that have not ended although their attempt is to stop."""
    return (
        Member.objects.filter(
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
    now = clock.now()
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


def gangs_torn(bound_s: float) -> list[tuple[UUID, str]]:
    """Starting gangs of which a member has run for `bound_s` without all others, and why."""
    since = clock.now() - timedelta(seconds=bound_s)
    late = Member.objects.filter(
        attempt__state=AttemptState.STARTING,
        attempt__replicas__gt=1,
        state__in=[MemberState.ALLOCATED, MemberState.STARTING],
        attempt__in=Member.objects.filter(
            state=MemberState.RUNNING, released_at__isnull=True, started_at__lt=since
        ).values("attempt_id"),
    ).order_by("attempt_id", "rank")
    found: dict[UUID, str] = {}
    for attempt_id, rank, detail in late.values_list("attempt_id", "rank", "detail"):
        found.setdefault(
            attempt_id, f"Member {rank} did not start in {bound_s:g} s. {detail}".strip()
        )
    return list(found.items())


def attempts_stranded() -> list[UUID]:
    """Attempts whose launch has not begun, and whose node cannot be reached.

    Many wait for victims to end first, and their node may never report that.
    """
    return list(
        Attempt.objects.filter(
            state=AttemptState.ALLOCATED, members__node__state__in=UNREACHED_STATES
        )
        .order_by("pk")
        .distinct()
        .values_list("pk", flat=True)
    )


def attempts_to_suspect() -> list[tuple[UUID, str]]:
    """Attempts with a member that may be running on a node that is silent; with its name."""
    members = Member.objects.filter(
        Q(state=MemberState.RUNNING) | Q(state=MemberState.STARTING, launched_at__isnull=False),
        released_at__isnull=True,
        attempt__state__in=[AttemptState.STARTING, AttemptState.RUNNING],
        node__state__in=UNREACHED_STATES,
    )
    found = members.order_by("attempt_id").values_list("attempt_id", "node__name")
    return list(dict(found).items())


def attempts_to_unsuspect() -> list[UUID]:
    """Suspect attempts all of whose nodes answer again."""
    silent = Member.objects.filter(
        released_at__isnull=True, node__state__in=UNREACHED_STATES
    ).exclude(state=MemberState.EXITED)
    return list(
        Attempt.objects.filter(state=AttemptState.SUSPECT)
        .exclude(pk__in=silent.values("attempt_id"))
        .values_list("pk", flat=True)
    )


def members_unsent() -> list[int]:
    """Members that were never launched, of attempts that are to stop."""
    return list(
        Member.objects.filter(
            attempt__state=AttemptState.STOPPING,
            state=MemberState.ALLOCATED,
            launched_at__isnull=True,
            released_at__isnull=True,
        ).values_list("pk", flat=True)
    )


def members_to_release(node_ids: Iterable[int], *, token: str) -> list[tuple[int, str]]:
    """Members on silent nodes of which a process that is gone never sent the launch."""
    rows = Member.objects.filter(
        node__in=list(node_ids),
        node__state__in=UNREACHED_STATES,
        released_at__isnull=True,
        state=MemberState.STARTING,
        launched_at__isnull=True,
    )
    return list(rows.exclude(lock_token=token).values_list("pk", "lock_token"))


def members_switched_off(node_ids: Iterable[int]) -> list[tuple[int, int, str]]:
    """Members on nodes that an administrator declared off: id, node, its name."""
    rows = _maybe_alive().filter(node__in=list(node_ids), node__off_at__isnull=False)
    return [
        (pk, node or 0, name) for pk, node, name in rows.values_list("pk", "node", "node__name")
    ]


def members_launched(node_id: int) -> list[int]:
    """Members on the node that were launched and are not known to have ended."""
    return list(_maybe_alive().filter(node=node_id).order_by("pk").values_list("pk", flat=True))


def members_leased(node_id: int, *, boot_id: str) -> list[tuple[int, float]]:
    """Members on the node that end by themselves, and when on that boot's clock."""
    rows = _maybe_alive().filter(node=node_id, boot_id=boot_id, lease_until_s__isnull=False)
    found = rows.values_list("pk", "lease_until_s")
    return [(pk, until) for pk, until in found if until is not None]


def _maybe_alive() -> QuerySet[Member]:
    """Members that were launched and are not known to have ended."""
    return Member.objects.filter(
        released_at__isnull=True,
        state__in=[MemberState.STARTING, MemberState.RUNNING],
        attempt__state__in=LIVE_ATTEMPT_STATES,
    )


def maintenance_left_s() -> float:
    """How long planned work on the control plane may still last; 0 without any."""
    until = Installation.objects.values_list("maintenance_until", flat=True).get(id=1)
    return max(0.0, (until - clock.now()).total_seconds()) if until else 0.0


def member_facts(member: Member, *, installation: str) -> MemberFacts:
    """Everything that a launch needs. `member` with attempt, task, owner, queue and node.

    Raises:
        BadInput: the vaults of its owner bring more than a container can be given, or its image
            is none.
        CannotUnseal: a secret was sealed with a key that is gone, or for another place.
        VaultGone: a vault that it began with was removed.
    """
    attempt, task, node = member.attempt, member.attempt.task, member.node
    if node is None:
        raise ValueError(f"member {member.pk} has no node")
    profile: Profile = attempt.queue.profile
    given = launch_inputs(task, vault_refs_of(attempt.vaults))
    runtime: RuntimeName = node.runtime  # type: ignore[assignment]  # the column's choices
    return MemberFacts(
        installation=installation,
        task_id=str(task.pk),
        generation=attempt.generation,
        rank=member.rank,
        world_size=attempt.replicas,
        runtime=runtime,
        allows_process=node.allows_process,
        account=int(node.report.get("account", 0)),
        # Rows of earlier versions hold names as users wrote them.
        image=ImageName.parse(given.image) if given.image else None,
        command=given.command,
        environment=given.environment,
        secrets=given.all_secrets,
        working_dir=given.working_dir,
        amounts=dict(member.amounts),
        devices=_given_devices(member),
        volumes=_given_volumes(task),
        shm_mb=profile.shm_mb,
        owner_id=task.owner_id,
        uid=task.owner.unix_uid,
        gid=task.owner.unix_gid,
        host_network=profile.host_network,
        read_only_root=profile.read_only_root,
        extras=extra_permissions_of(profile.extra_permissions),
        master_address=_master_address(attempt),
        master_port=attempt.master_port or PORTS[0],
        resumption=resumption_of(attempt),
        checkpoint_dir=_checkpoint_dir(task, runtime),
        abort_callback=_abort_callback(task),
        noted=ImageIdentity(attempt.image_digest, attempt.image_id),
    )


def _abort_callback(task: Task) -> AbortCallbackSpec | None:
    given = task.abort_callback
    if not given:
        return None
    return AbortCallbackSpec(given["language"], given["script"], float(given["timeout_s"]))


def _checkpoint_dir(task: Task, runtime: RuntimeName) -> str:
    """The folder of the task on its checkpoint volume, as the task sees it."""
    if not task.checkpoint_volume:
        return ""
    folder = f"/volumes/{task.checkpoint_volume}"
    if runtime == "process":
        # Nothing is mounted for a plain process: it sees the node as it is.
        volume = Volume.objects.filter(name=task.checkpoint_volume, removed_at__isnull=True).first()
        folder = volume.path if volume else folder
    return f"{folder}/{task.pk}"


def _given_devices(member: Member) -> tuple[AllocatedDevice, ...]:
    shares = dict(member.devices)
    rows = Device.objects.filter(node=member.node, index__in=shares).order_by("index")
    return tuple(_given_device(device, shares[device.index], member.node) for device in rows)


def _given_device(device: Device, milli: int, node: Node | None) -> AllocatedDevice:
    """The device or a share of it, and what the node is to hold the task to its share with.

    A slice (MIG) holds by itself; a share of a slice is accounted.
    """
    enforcement = (node.report.get("enforcement") or {}) if node else {}
    is_whole = milli >= MILLI or device.is_simulated or device.parent_uuid
    return AllocatedDevice(
        uuid=device.uuid,
        cdi=device.cdi,
        milli=milli,
        memory_mb=device.memory_mb * milli // MILLI,
        enforced_by="mps" if not is_whole and enforcement.get("memory") == "mps" else "",
    )


def _given_volumes(task: Task) -> tuple[VolumeMount, ...]:
    names = [*task.volumes, task.checkpoint_volume]
    rows = Volume.objects.filter(name__in=names, removed_at__isnull=True).order_by("name")
    return tuple(
        VolumeMount(
            source=row.path,
            target=f"/volumes/{row.name}",
            read_only=row.is_read_only,
            checkpoints=row.name == task.checkpoint_volume,
        )
        for row in rows
    )


def _master_address(attempt: Attempt) -> str:
    """Where the members of a gang find the first one: its node, as members see it."""
    if attempt.replicas == 1:
        return ""
    nodes = [one.node for one in attempt.members.select_related("node").order_by("rank")]
    first = nodes[0]
    if first is None:
        return ""
    is_one = len({node.pk for node in nodes if node is not None}) == 1
    if is_one and (first.runtime == Runtime.PROCESS or attempt.queue.profile.host_network):
        # On one machine the route out and back in may not exist.
        return "127.0.0.1"
    return first.address or socket.getfqdn()
