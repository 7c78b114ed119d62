"""What a member of a task runs on its node: the task's spec, and what the member was given."""

import socket
from dataclasses import dataclass

import msgspec

from apps.accounts.models import User
from apps.core.errors import BadInput
from apps.core.images import ImageName
from apps.core.units import MILLI
from apps.execution.own_account import spec_allowed
from apps.execution.protocol.requests import (
    AllocatedDevice,
    ContainerSpec,
    RuntimeName,
    VolumeMount,
)
from apps.nodes.models import Device, Node, Runtime, Volume
from apps.nodes.selectors import volumes_mountable_by
from apps.policies.extra_permissions import extra_permissions_of
from apps.policies.models import Profile
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.selectors.attempts import resumption_of
from apps.tasks.selectors.vaults import launch_spec, vault_refs_of
from apps.tasks.services.members.gangs import PORTS
from apps.tasks.task_spec import TaskSpec

# Users without a Unix id: each has one of its own on the node, apart from the node's accounts;
# no system gives out ids as high, and 31 bits hold them.
FIRST_OF_PEOPLE = 2_000_000_000
# In containers of podman without root, which has 65,536 ids, of its account alone on the node.
# Users beyond them share the last one.
FIRST_WITHOUT_ROOT = 10_000
NOBODY = 65_534
# A launch that has not arrived by then is refused by the node, on its own clock.
LAUNCH_WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class NodeMoment:
    """The node's boot and its clock, as of this moment."""

    boot_id: str
    uptime_s: float


def container_spec(member: Member) -> ContainerSpec:
    """What the member runs. `member` with attempt, task, owner, queue, profile and node.

    Raises:
        BadInput: the vaults of its owner bring more than a container can be given, its image is
            none, its owner may not mount one of its volumes any more, or its node runs no commands
            of users.
        CannotUnseal: a secret was sealed with a key that is gone, or for another place.
        VaultGone: a vault that it began with was removed.
    """
    attempt, node = member.attempt, member.node
    if node is None:
        raise ValueError(f"member {member.pk} has no node")
    profile: Profile = attempt.queue.profile
    extras = extra_permissions_of(profile.extra_permissions)
    runtime: RuntimeName = node.runtime  # type: ignore[assignment]  # the column's choices
    account = int(node.report.get("account", 0))
    uid, gid = _user_and_group_ids(
        runtime, account, attempt.task.owner, is_root=extras.is_root and runtime != "process"
    )
    spec = launch_spec(attempt.task, vault_refs_of(attempt.vaults))
    spec = spec_allowed(spec, node, uid=account or uid)
    volumes = _given_volumes(spec, attempt.task)
    resumption = resumption_of(attempt)
    memory_mb = member.amounts.get("memory_mb", 0) // MILLI
    return ContainerSpec(
        runtime=runtime,
        # Rows of earlier versions hold names as users wrote them.
        image=str(ImageName.parse(spec.image)) if spec.image else "",
        command=tuple(spec.command),
        environment={
            **spec.environment,
            **_rpm_variables(member, spec, is_resumed=resumption.is_possible),
        },
        secrets=spec.secrets,
        working_dir=spec.working_dir,
        devices=_given_devices(member, node),
        volumes=volumes,
        cpu_milli=member.amounts.get("cpu", 0),
        memory_mb=memory_mb,
        shm_mb=profile.shm_mb if profile.shm_mb is not None else memory_mb // 2,
        uid=uid,
        gid=gid,
        allow_root=extras.is_root,
        capabilities=extras.capabilities,
        device_paths=extras.device_paths,
        allow_process=node.allows_process,
        network="host" if profile.host_network else "default",
        ports=_ports(member, runtime, profile),
        read_only=profile.read_only_root,
        # Members of a gang look at different times, some when others have begun to save: all get
        # the same answer.
        resume_if_saved=attempt.replicas == 1 and not resumption.is_said,
        abort_callback=spec.abort_callback,
    )


def with_master_port(spec: ContainerSpec, port: int) -> ContainerSpec:
    """The same member of a gang, which meets at this port."""
    return msgspec.structs.replace(
        spec,
        environment={**spec.environment, "RPM_MASTER_PORT": str(port)},
        ports=(port,) if spec.ports else (),
    )


def _user_and_group_ids(
    runtime: RuntimeName, account: int, owner: User, *, is_root: bool
) -> tuple[int | None, int | None]:
    """User and group of what runs; None: the helper's.

    A helper that is not root can only run processes as itself.

    Args:
        account: the user id under which the helper itself runs on the node.
    """
    if runtime == "process" and account != 0:
        return None, None
    if is_root:
        return 0, 0
    if owner.unix_uid is None:
        own = FIRST_OF_PEOPLE + owner.pk
        if runtime == "podman" and account != 0:
            own = min(FIRST_WITHOUT_ROOT + owner.pk, NOBODY)
        return own, own
    return owner.unix_uid, owner.unix_gid if owner.unix_gid is not None else owner.unix_uid


def _rpm_variables(member: Member, spec: TaskSpec, *, is_resumed: bool) -> dict[str, str]:
    attempt = member.attempt
    variables = {
        "RPM_TASK_ID": str(attempt.task_id),
        "RPM_ATTEMPT": str(attempt.generation),
        "RPM_RESUME": "1" if is_resumed else "0",
    }
    if spec.array is not None:
        variables |= {
            "RPM_ARRAY_ID": str(attempt.task.array_id),
            "RPM_ARRAY_INDEX": str(attempt.task.array_index),
            "RPM_ARRAY_SIZE": str(spec.array.size),
        }
    if spec.checkpoint_volume:
        variables["RPM_CHECKPOINT_DIR"] = _checkpoint_dir(member, spec.checkpoint_volume)
    if attempt.replicas > 1:
        variables |= {
            "RPM_RANK": str(member.rank),
            "RPM_WORLD_SIZE": str(attempt.replicas),
            "RPM_MASTER_ADDR": _master_address(attempt),
            "RPM_MASTER_PORT": str(_master_port(attempt)),
        }
    return variables


def _ports(member: Member, runtime: RuntimeName, profile: Profile) -> tuple[int, ...]:
    """Ports published on the node: of a gang's first member the port at which all meet."""
    is_met = member.attempt.replicas > 1 and member.rank == 0
    has_own_network = runtime != "process" and not profile.host_network
    return (_master_port(member.attempt),) if is_met and has_own_network else ()


def _master_port(attempt: Attempt) -> int:
    """The noted port; until it is noted, any."""
    return attempt.master_port or PORTS[0]


def _checkpoint_dir(member: Member, volume_name: str) -> str:
    """The folder of the task on its checkpoint volume, as the task sees it."""
    folder = f"/volumes/{volume_name}"
    if member.node is not None and member.node.runtime == Runtime.PROCESS:
        # Nothing is mounted for a plain process: it sees the node as it is.
        volume = Volume.objects.filter(name=volume_name, removed_at__isnull=True).first()
        folder = volume.path if volume else folder
    return f"{folder}/{member.attempt.task_id}"


def _given_devices(member: Member, node: Node) -> tuple[AllocatedDevice, ...]:
    shares = dict(member.devices)
    rows = Device.objects.filter(node=node, index__in=shares).order_by("index")
    return tuple(_given_device(device, shares[device.index], node) for device in rows)


def _given_device(device: Device, milli: int, node: Node) -> AllocatedDevice:
    """The device or a share of it, and what the node is to hold the task to its share with.

    A slice (MIG) holds by itself; a share of a slice is accounted.
    """
    enforcement = node.report.get("enforcement") or {}
    is_whole = milli >= MILLI or device.is_simulated or device.parent_uuid
    return AllocatedDevice(
        uuid=device.uuid,
        cdi=device.cdi,
        milli=milli,
        memory_mb=device.memory_mb * milli // MILLI,
        enforced_by="mps" if not is_whole and enforcement.get("memory") == "mps" else "",
    )


def _given_volumes(spec: TaskSpec, task: Task) -> tuple[VolumeMount, ...]:
    """The volumes of the task, by the rules of now: they may have changed since it was enqueued.

    Raises:
        BadInput: one is gone, or the owner may not mount it, or not write their checkpoints there.
    """
    names = {*spec.volumes, spec.checkpoint_volume} - {""}
    may_write = volumes_mountable_by(task.owner, names, is_by_owner=task.is_by_owner)
    rows = Volume.objects.filter(name__in=may_write, removed_at__isnull=True).order_by("name")
    missing = sorted(names - {row.name for row in rows})
    if missing:
        raise BadInput(f"Volume {missing[0]} is gone, or the owner of the task may not mount it.")
    if spec.checkpoint_volume and not may_write[spec.checkpoint_volume]:
        words = f"The owner of the task may only read volume {spec.checkpoint_volume}"
        raise BadInput(f"{words}, which is to keep its checkpoints.")
    return tuple(
        VolumeMount(
            source=row.path,
            target=f"/volumes/{row.name}",
            read_only=row.is_read_only or not may_write[row.name],
            checkpoints=row.name == spec.checkpoint_volume,
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
