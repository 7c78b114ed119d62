"""Launch requests from plain facts. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.core.images import ImageName
from apps.core.units import MILLI
from apps.execution.protocol.requests import (
    AbortCallbackSpec,
    AllocatedDevice,
    LaunchRequest,
    RuntimeName,
    VolumeMount,
)
from apps.policies.extra_permissions import ExtraPermissions
from apps.tasks.selectors.attempts import Resumption
from apps.tasks.services.attempts.images import ImageIdentity

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
class Moment:
    """The node's boot and its clock, as of this moment."""

    boot_id: str
    uptime_s: float


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """One member to launch. `amounts` in thousandths per key."""

    installation: str
    task_id: str
    generation: int
    rank: int
    world_size: int
    runtime: RuntimeName
    allows_process: bool
    # The user id under which the helper itself runs on the node.
    account: int
    image: ImageName | None
    command: tuple[str, ...]
    environment: Mapping[str, str]
    secrets: Mapping[str, str] = field(repr=False)
    working_dir: str
    amounts: Mapping[str, int]
    devices: tuple[AllocatedDevice, ...]
    volumes: tuple[VolumeMount, ...] = ()
    shm_mb: int | None = None
    owner_id: int = 0
    uid: int | None = None
    gid: int | None = None
    host_network: bool = False
    read_only_root: bool = False
    extras: ExtraPermissions = field(default_factory=ExtraPermissions)
    master_address: str = ""
    master_port: int = 0
    # What earlier attempts saved, and whether it is found from here.
    resumption: Resumption = field(default_factory=lambda: Resumption(is_possible=False))
    checkpoint_dir: str = ""
    abort_callback: AbortCallbackSpec | None = None
    # What other members, or an earlier launch of this one, found the image to be.
    noted: ImageIdentity = field(default_factory=ImageIdentity)


def launch_request(
    facts: MemberFacts,
    moment: Moment,
    image: ImageIdentity,
    lease_until_s: float | None = None,
) -> LaunchRequest:
    """The request that starts this member, and no other, before the window closes.

    Args:
        image: exactly which one its node has under the name; without a container an empty one.
        lease_until_s: when the node ends it unless it hears more; None: it does not.
    """
    memory_mb = facts.amounts.get("memory_mb", 0) // MILLI
    uid, gid = user_and_group_ids(facts)
    return LaunchRequest(
        installation=facts.installation,
        task_id=facts.task_id,
        generation=facts.generation,
        rank=facts.rank,
        boot_id=moment.boot_id,
        not_after_s=moment.uptime_s + LAUNCH_WINDOW_S,
        runtime=facts.runtime,
        image=str(facts.image or ""),
        digest=image.digest,
        image_id=image.image_id,
        command=facts.command,
        environment={**facts.environment, **_rpm_variables(facts)},
        secrets=dict(facts.secrets),
        workdir=facts.working_dir,
        devices=facts.devices,
        volumes=facts.volumes,
        cpu_milli=facts.amounts.get("cpu", 0),
        memory_mb=memory_mb,
        shm_mb=facts.shm_mb if facts.shm_mb is not None else memory_mb // 2,
        uid=uid,
        gid=gid,
        allow_process=facts.allows_process,
        network="host" if facts.host_network else "default",
        ports=_ports(facts),
        read_only=facts.read_only_root,
        # Members of a gang look at different times, some when others have begun to save: all get
        # the same answer.
        resume_if_saved=facts.world_size == 1 and not facts.resumption.is_said,
        lease_until_s=lease_until_s,
        abort_callback=facts.abort_callback,
        allow_root=facts.extras.is_root,
        capabilities=facts.extras.capabilities,
        device_paths=facts.extras.device_paths,
    )


def _ports(facts: MemberFacts) -> tuple[int, ...]:
    """Ports published on the node: of a gang's first member the port at which all meet."""
    is_met = facts.world_size > 1 and facts.rank == 0
    has_own_network = facts.runtime != "process" and not facts.host_network
    return (facts.master_port,) if is_met and has_own_network else ()


def _rpm_variables(facts: MemberFacts) -> dict[str, str]:
    variables = {
        "RPM_TASK_ID": facts.task_id,
        "RPM_ATTEMPT": str(facts.generation),
        "RPM_RESUME": "1" if facts.resumption.is_possible else "0",
    }
    if facts.checkpoint_dir:
        variables["RPM_CHECKPOINT_DIR"] = facts.checkpoint_dir
    if facts.world_size > 1:
        variables |= {
            "RPM_RANK": str(facts.rank),
            "RPM_WORLD_SIZE": str(facts.world_size),
            "RPM_MASTER_ADDR": facts.master_address,
            "RPM_MASTER_PORT": str(facts.master_port),
        }
    return variables


def user_and_group_ids(facts: MemberFacts) -> tuple[int | None, int | None]:
    """User and group of what runs; None: the helper's. Root only in containers by their profile.

    A helper that is not root can only run processes as itself.
    """
    if facts.runtime == "process" and facts.account != 0:
        return None, None
    if facts.extras.is_root and facts.runtime != "process":
        return 0, 0
    if facts.uid is None:
        own = FIRST_OF_PEOPLE + facts.owner_id
        if facts.runtime == "podman" and facts.account != 0:
            own = min(FIRST_WITHOUT_ROOT + facts.owner_id, NOBODY)
        return own, own
    return facts.uid, facts.gid if facts.gid is not None else facts.uid
