"""One member of a task, as the control plane wants it launched, checked field by field."""

from __future__ import annotations

from typing import Any, NamedTuple

from apps.execution.node import checks

RUNTIMES = ("podman", "docker", "process")
NETWORKS = ("default", "host", "none")


class Identity(NamedTuple):
    """Which member of which admission of which task."""

    task_id: str
    generation: int
    rank: int


class Device(NamedTuple):
    """One device. `cdi` is its fully qualified CDI name, empty for a simulated device."""

    uuid: str
    cdi: str


class Volume(NamedTuple):
    """A folder of the node, seen inside the container at `target`."""

    source: str
    target: str
    read_only: bool


class Spec(NamedTuple):
    """What to run and with how much. Memory is in 2^20 bytes, CPU in thousandths of a core."""

    identity: Identity
    runtime: str
    image: str
    command: tuple[str, ...]
    environment: dict[str, str]
    secrets: dict[str, str]
    workdir: str
    devices: tuple[Device, ...]
    volumes: tuple[Volume, ...]
    cpu_milli: int
    memory_mb: int
    shm_mb: int
    pids: int
    user: str
    network: str
    read_only: bool


def identity_of(request: dict[str, Any]) -> Identity:
    """The three numbers every verb about a member carries."""
    return Identity(
        checks.text(request, "task_id", checks.IDENTIFIER),
        checks.whole(request, "generation", lowest=1, highest=2**53),
        checks.whole(request, "rank", lowest=0, highest=99_999),
    )


def spec_of(request: dict[str, Any]) -> Spec:
    """The specification in a launch request.

    Raises:
        Refusal: a field does not fit its grammar; code `invalid`, the detail names it.
    """
    runtime = _one_of(request, "runtime", RUNTIMES)
    command = checks.command(request)
    if runtime == "process" and not command:
        raise checks.refuse("command", "empty, and the process runtime has no image to ask")
    return Spec(
        identity=identity_of(request),
        runtime=runtime,
        image="" if runtime == "process" else checks.text(request, "image", checks.IMAGE),
        command=command,
        environment=checks.variables(request, "environment"),
        secrets=checks.variables(request, "secrets"),
        workdir=checks.path(request, "workdir") if request.get("workdir") else "",
        devices=tuple(_device_of(item) for item in checks.records(request, "devices", most=1024)),
        volumes=tuple(_volume_of(item) for item in checks.records(request, "volumes", most=64)),
        cpu_milli=checks.whole(request, "cpu_milli", lowest=0, highest=10**7),
        memory_mb=checks.whole(request, "memory_mb", lowest=0, highest=10**9),
        shm_mb=checks.whole(request, "shm_mb", lowest=0, highest=10**9),
        pids=checks.whole(request, "pids", lowest=1, highest=4_194_304),
        user=_user_of(request),
        network=_one_of(request, "network", NETWORKS),
        read_only=checks.flag(request, "read_only"),
    )


def _device_of(item: dict[str, Any]) -> Device:
    cdi = checks.text(item, "cdi", checks.CDI_NAME) if item.get("cdi") else ""
    return Device(checks.text(item, "uuid", checks.DEVICE_UUID), cdi)


def _volume_of(item: dict[str, Any]) -> Volume:
    return Volume(
        checks.path(item, "source"), checks.path(item, "target"), checks.flag(item, "read_only")
    )


def _user_of(request: dict[str, Any]) -> str:
    """`uid:gid`, or empty for the image's own user; the host's root only if it is allowed."""
    if request.get("uid") is None:
        return ""
    lowest = 0 if request.get("allow_root") is True else 1
    uid = checks.whole(request, "uid", lowest=lowest, highest=2**32 - 2)
    gid = checks.whole(request, "gid", lowest=lowest, highest=2**32 - 2)
    return "%d:%d" % (uid, gid)


def _one_of(request: dict[str, Any], field: str, allowed: tuple[str, ...]) -> str:
    value = request.get(field)
    if value not in allowed:
        raise checks.refuse(field, "%.80r is none of %s" % (value, ", ".join(allowed)))
    return str(value)
