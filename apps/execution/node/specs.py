"""One member of a task, as the control plane wants it launched, checked field by field."""

from __future__ import annotations

from typing import Any, NamedTuple

from apps.execution.node import images, request_fields
from apps.execution.node.errors import RequestRefusal

RUNTIMES = ("podman", "docker", "process")
NETWORKS = ("default", "host", "none")
ENFORCERS = ("mps",)


class MemberIdentity(NamedTuple):
    """Which member of which admission of which task."""

    task_id: str
    generation: int
    rank: int


class DeviceSpec(NamedTuple):
    """One device, or a share of it in thousandths.

    `cdi` is its fully qualified CDI name, empty for a simulated device; `memory_mb` the memory
    that belongs to the share (0: not known), and `enforced_by` what holds the task to it ("mps"),
    empty where nothing does.
    """

    uuid: str
    cdi: str
    milli: int = 1000
    memory_mb: int = 0
    enforced_by: str = ""


class VolumeSpec(NamedTuple):
    """A folder of the node, seen inside the container at `target`."""

    source: str
    target: str
    read_only: bool
    # The task saves its state there.
    checkpoints: bool = False


class Spec(NamedTuple):
    """What to run and with how much. Memory is in 2^20 bytes, CPU in thousandths of a core."""

    identity: MemberIdentity
    runtime: str
    image: str
    command: tuple[str, ...]
    environment: dict[str, str]
    secrets: dict[str, str]
    working_dir: str
    devices: tuple[DeviceSpec, ...]
    volumes: tuple[VolumeSpec, ...]
    cpu_milli: int
    memory_mb: int
    shm_mb: int
    pids: int
    user: str
    network: str
    read_only: bool
    # Beyond the usual, where an administrator allows it.
    capabilities: tuple[str, ...] = ()
    device_paths: tuple[str, ...] = ()
    # Where the MPS daemon of its share is reached, and what its server takes for /dev/shm.
    mps_pipe: str = ""
    mps_shared_memory: str = ""
    # Exactly which image it is: its digest in registries, and its number on this node.
    digest: str = ""
    image_id: str = ""
    # Where its image asks for volumes; docker makes them, podman ignores them.
    image_volumes: tuple[str, ...] = ()
    # Of a container with a network of its own, reached at the same ports of the node.
    ports: tuple[int, ...] = ()
    # It resumes only where it has saved something.
    resume_if_saved: bool = False

    @property
    def reference(self) -> str:
        """Its name, by the digest where that is known."""
        return images.reference(self.image, self.digest)


def identity_of(request: dict[str, Any]) -> MemberIdentity:
    """The three numbers every verb about a member carries."""
    return MemberIdentity(
        request_fields.text(request, "task_id", request_fields.IDENTIFIER),
        request_fields.whole(request, "generation", lowest=1, highest=2**53),
        request_fields.whole(request, "rank", lowest=0, highest=99_999),
    )


def spec_of(request: dict[str, Any]) -> Spec:
    """The specification in a launch request.

    Raises:
        RequestRefusal: a field does not fit its grammar; code `invalid`, the detail names it.
    """
    given = request_fields.record(request, "spec")
    runtime = one_of(given, "runtime", RUNTIMES)
    command = request_fields.command(given)
    if runtime == "process" and not command:
        raise request_fields.refuse("command", "empty, and the process runtime has no image to ask")
    return Spec(
        identity=identity_of(request),
        runtime=runtime,
        image="" if runtime == "process" else request_fields.image(given),
        command=command,
        environment=request_fields.variables(given, "environment"),
        secrets=request_fields.secrets(given, "secrets"),
        working_dir=request_fields.working_dir(given, "working_dir")
        if given.get("working_dir")
        else "",
        devices=tuple(
            device_of(item) for item in request_fields.records(given, "devices", most=1024)
        ),
        volumes=tuple(
            _volume_of(item) for item in request_fields.records(given, "volumes", most=64)
        ),
        cpu_milli=request_fields.whole(given, "cpu_milli", lowest=0, highest=10**7),
        memory_mb=request_fields.whole(given, "memory_mb", lowest=0, highest=10**9),
        shm_mb=request_fields.whole(given, "shm_mb", lowest=0, highest=10**9),
        pids=request_fields.whole(given, "pids", lowest=1, highest=4_194_304),
        user=user_of(given, is_required=runtime != "process"),
        network=one_of(given, "network", NETWORKS),
        read_only=request_fields.flag(given, "read_only"),
        capabilities=request_fields.texts(given, "capabilities", request_fields.CAPABILITY),
        device_paths=request_fields.texts(given, "device_paths", request_fields.DEVICE_PATH),
        digest=images.digest_of(given, "digest"),
        image_id=images.digest_of(given, "image_id"),
        ports=_ports_of(given),
        resume_if_saved=given.get("resume_if_saved") is True,
    )


def refuse_process(request: dict[str, Any], runtime: str) -> None:
    """Raises RequestRefusal for a task without a container where the administrator allows none."""
    if runtime == "process" and request.get("allow_process") is not True:
        raise RequestRefusal("not_allowed", "this node does not allow tasks without a container")


def device_of(item: dict[str, Any]) -> DeviceSpec:
    """A device, or a share of it, as launch and preflight name it."""
    cdi = request_fields.text(item, "cdi", request_fields.CDI_NAME) if item.get("cdi") else ""
    return DeviceSpec(
        request_fields.text(item, "uuid", request_fields.DEVICE_UUID),
        cdi,
        request_fields.whole(item, "milli", lowest=1, highest=1000) if "milli" in item else 1000,
        request_fields.whole(item, "memory_mb", lowest=0, highest=10**9)
        if "memory_mb" in item
        else 0,
        one_of(item, "enforced_by", ENFORCERS) if item.get("enforced_by") else "",
    )


def _volume_of(item: dict[str, Any]) -> VolumeSpec:
    return VolumeSpec(
        request_fields.path(item, "source"),
        request_fields.target(item, "target"),
        request_fields.flag(item, "read_only"),
        "checkpoints" in item and request_fields.flag(item, "checkpoints"),
    )


def user_of(request: dict[str, Any], *, is_required: bool) -> str:
    """`uid:gid`, or empty for the helper's own account; root only where it is allowed.

    A container always has its ids from here: the image's own user is root, as a rule.
    """
    if request.get("uid") is None and not is_required:
        return ""
    lowest = 0 if request.get("allow_root") is True else 1
    uid = request_fields.whole(request, "uid", lowest=lowest, highest=2**32 - 2)
    gid = request_fields.whole(request, "gid", lowest=lowest, highest=2**32 - 2)
    return "%d:%d" % (uid, gid)


def _ports_of(request: dict[str, Any]) -> tuple[int, ...]:
    """Ports that need no rights on the node; a control plane that knows none sends none."""
    ports = request.get("ports", [])
    if not isinstance(ports, list) or len(ports) > 16:
        raise request_fields.refuse("ports", "no list of at most 16")
    return tuple(
        request_fields.whole({"ports": port}, "ports", lowest=1024, highest=65_535)
        for port in ports
    )


def one_of(request: dict[str, Any], field: str, allowed: tuple[str, ...]) -> str:
    """A required string out of a list."""
    value = request.get(field)
    if value not in allowed:
        raise request_fields.refuse(field, "%.80r is none of %s" % (value, ", ".join(allowed)))
    return str(value)
