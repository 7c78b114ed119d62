"""What a node is told to start, from plain facts."""

from collections.abc import Mapping
from dataclasses import dataclass

from apps.core.units import MILLI
from apps.execution.protocol.requests import GivenDevice, GivenVolume, Launch, RuntimeName

# Nobody: where neither the person nor the pool says under which ids processes run.
NOBODY = 65_534
MASTER_PORT = 29_500
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
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    working_dir: str
    amounts: Mapping[str, int]
    devices: tuple[GivenDevice, ...]
    volumes: tuple[GivenVolume, ...] = ()
    shm_mb: int | None = None
    uid: int | None = None
    gid: int | None = None
    host_network: bool = False
    read_only_root: bool = False
    master_address: str = ""


def launch_request(facts: MemberFacts, moment: Moment) -> Launch:
    """The request that starts this member, and no other, before the window closes."""
    memory_mb = facts.amounts.get("memory_mb", 0) // MILLI
    uid, gid = _ids(facts)
    return Launch(
        installation=facts.installation,
        task_id=facts.task_id,
        generation=facts.generation,
        rank=facts.rank,
        boot_id=moment.boot_id,
        not_after_s=moment.uptime_s + LAUNCH_WINDOW_S,
        runtime=facts.runtime,
        image=facts.image,
        command=facts.command,
        environment={**facts.environment, **_rpm_variables(facts)},
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
        read_only=facts.read_only_root,
    )


def _rpm_variables(facts: MemberFacts) -> dict[str, str]:
    variables = {
        "RPM_TASK_ID": facts.task_id,
        "RPM_ATTEMPT": str(facts.generation),
        "RPM_RESUME": "1" if facts.generation > 1 else "0",
    }
    if facts.world_size > 1:
        variables |= {
            "RPM_RANK": str(facts.rank),
            "RPM_WORLD_SIZE": str(facts.world_size),
            "RPM_MASTER_ADDR": facts.master_address,
            "RPM_MASTER_PORT": str(MASTER_PORT),
        }
    return variables


def _ids(facts: MemberFacts) -> tuple[int | None, int | None]:
    """Never root on the host; a helper that is not root can only run processes as itself."""
    if facts.runtime == "process" and facts.account != 0:
        return None, None
    if facts.uid is None:
        return NOBODY, NOBODY
    return facts.uid, facts.gid if facts.gid is not None else facts.uid
