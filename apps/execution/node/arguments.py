"""Argument lists of podman and docker. Pure: nothing is started, nothing is read."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from apps.execution.node.environment import CHECKPOINT_FILE, SECRETS_FOLDER
from apps.execution.node.specs import Spec, VolumeSpec

# Said even where it is the default: a node's containers.conf could open it. The proxies of the
# node's own environment often hold a password.
PODMAN_CLOSED = ("--http-proxy=false", "--ipc=private", "--pid=private", "--uts=private")
# What podman would do because an image says so. A VOLUME takes one of the node's locks and space
# outside the container, which `--read-only` does not close; for a program named like an init,
# podman mounts the control groups of systemd and folders in memory that can be written.
PODMAN_UNMOVED = ("--image-volume=ignore", "--systemd=false")


# podman 4 keeps a secret under at most so many.
SECRET_ID_CHARACTERS = 64
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # where it is in a container


class ContainerPaths(NamedTuple):
    """What the argument list needs to know besides the specification."""

    name: str
    installation: str
    home: str
    folder: str
    private: str = ""


def podman_run(spec: Spec, paths: ContainerPaths) -> list[str]:
    """Create and start a container that must not exist yet, and stay until it ends.

    Its output goes straight into the descriptor that podman was started with
    (`--log-driver=passthrough`), so neither the supervisor's death nor podman's ends the log.
    `run` refuses a name that exists: an exited container is never started a second time.
    """
    return [
        "podman",
        "run",
        "--pull=never",
        "--log-driver=passthrough",
        "--pidfile=%s/pid" % paths.folder,
        *PODMAN_CLOSED,
        *PODMAN_UNMOVED,
        *_common(spec, paths),
        *["--device=%s" % device.cdi for device in spec.devices if device.cdi],
        *[_secret(spec, paths, number, name) for number, name in enumerate(sorted(spec.secrets))],
        "--",
        spec.image_id or spec.reference,
        *spec.command,
    ]


def secret_id(member: str, number: int) -> str:
    """What podman keeps a secret under; by number, for its own name may be too long for podman."""
    readable = "%s-s%d" % (member, number)
    if len(readable) <= SECRET_ID_CHARACTERS:
        return readable
    return "rpm-%s-s%d" % (hashlib.sha256(member.encode()).hexdigest()[:40], number)


def _secret(spec: Spec, paths: ContainerPaths, number: int, name: str) -> str:
    """A file that only the task's user can read.

    Not a variable: podman 4.3 shows the value of a `type=env` secret in `inspect`.
    """
    uid, _, gid = (spec.user or "0:0").partition(":")
    owner = "uid=%s,gid=%s,mode=0400" % (uid, gid)
    return "--secret=%s,type=mount,target=%s/%s,%s" % (
        secret_id(paths.name, number),
        SECRETS_FOLDER,
        name,
        owner,
    )


def _secret_file(paths: ContainerPaths, name: str) -> VolumeSpec:
    """A file in memory, mounted by itself: docker keeps secrets only for a swarm."""
    target = "%s/%s" % (SECRETS_FOLDER, name)
    return VolumeSpec("%s/secrets/%s" % (paths.private, name), target, read_only=True)


def _checkpoint(paths: ContainerPaths) -> list[VolumeSpec]:
    if not paths.private:
        return []
    return [VolumeSpec("%s/checkpoint" % paths.folder, CHECKPOINT_FILE, read_only=False)]


def docker_run(spec: Spec, paths: ContainerPaths) -> list[str]:
    """Like `podman_run`; docker sends the output through its client, which the supervisor holds."""
    return [
        "docker",
        "run",
        "--pull=never",
        "--cidfile=%s/cid" % paths.folder,
        "--ipc=private",
        *_common(spec, paths),
        *[_mount(_secret_file(paths, name)) for name in sorted(spec.secrets)],
        *_anonymous_volumes(spec, paths),
        *["--device=%s" % device.cdi for device in spec.devices if device.cdi],
        "--",
        spec.image_id or spec.reference,
        *spec.command,
    ]


def pull(tool: str, reference: str, *, login_folder: str = "") -> list[str]:
    """Fetch an image.

    Args:
        login_folder: where `config.json` has the password; empty: as the node's account may.
    """
    if not login_folder:
        return [tool, "pull", "--", reference]
    if tool == "docker":
        return [tool, "--config=%s" % login_folder, "pull", "--", reference]
    return [tool, "pull", "--authfile=%s/config.json" % login_folder, "--", reference]


def labels(spec: Spec, paths: ContainerPaths) -> dict[str, str]:
    """Labels that distinguish RPM's containers from others, and one node's from another's."""
    return {
        "rpm.installation": paths.installation,
        "rpm.home": paths.home,
        "rpm.task": spec.identity.task_id,
        "rpm.generation": str(spec.identity.generation),
        "rpm.rank": str(spec.identity.rank),
    }


def _common(spec: Spec, paths: ContainerPaths) -> list[str]:
    return [
        "--name=%s" % paths.name,
        "--hostname=%s" % _hostname(spec),
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        # The runtime would run it outside the task's limits.
        "--no-healthcheck",
        "--pids-limit=%d" % spec.pids,
        "--env-file=%s/env" % paths.folder,
        *["--label=%s=%s" % item for item in sorted(labels(spec, paths).items())],
        *_amounts(spec),
        *["--cap-add=%s" % name for name in spec.capabilities],
        *["--device=%s" % path for path in spec.device_paths],
        *(["--user=%s" % spec.user] if spec.user else []),
        *(["--workdir=%s" % spec.working_dir] if spec.working_dir else []),
        *(["--read-only"] if spec.read_only else []),
        *(["--network=%s" % spec.network] if spec.network != "default" else []),
        *["--publish=%d:%d/tcp" % (port, port) for port in _published(spec)],
        *[_mount(volume) for volume in _bound(spec, paths)],
    ]


def _anonymous_volumes(spec: Spec, paths: ContainerPaths) -> list[str]:
    """The volumes that docker would make for the image, with labels by which `prune` finds them.

    docker removes them with the container, because they have no name. Where the root is read-only
    they are in the task's memory instead: docker makes no read-only volume without a name.
    """
    taken = {volume.target.rstrip("/") for volume in _bound(spec, paths)}
    targets = sorted({one.rstrip("/") for one in spec.image_volumes} - taken)
    if spec.read_only:
        return ["--mount=type=tmpfs,destination=%s" % target for target in targets]
    owner = "volume-label=rpm.installation=%s,volume-label=rpm.home=%s" % (
        paths.installation,
        paths.home,
    )
    return ["--mount=type=volume,destination=%s,%s" % (target, owner) for target in targets]


def _bound(spec: Spec, paths: ContainerPaths) -> list[VolumeSpec]:
    return [*spec.volumes, *_mps_volumes(spec), *_checkpoint(paths)]


def _published(spec: Spec) -> tuple[int, ...]:
    return spec.ports if spec.network == "default" else ()


def _hostname(spec: Spec) -> str:
    return "rpm-%s-%d" % (spec.identity.task_id[:40].rstrip("-"), spec.identity.rank)


def _amounts(spec: Spec) -> list[str]:
    """Limits that are not zero; memory and swap are one, else a task would swap its way out."""
    amounts = []
    if spec.cpu_milli:
        amounts.append("--cpus=%d.%03d" % divmod(spec.cpu_milli, 1000))
    if spec.memory_mb:
        amounts += ["--memory=%dm" % spec.memory_mb, "--memory-swap=%dm" % spec.memory_mb]
    if spec.shm_mb and not spec.mps_shared_memory:
        amounts.append("--shm-size=%dm" % spec.shm_mb)
    return amounts


def _mps_volumes(spec: Spec) -> list[VolumeSpec]:
    """The sockets of the MPS daemon, under the path it knows, and the memory its server shares."""
    if not spec.mps_pipe:
        return []
    return [
        VolumeSpec(spec.mps_pipe, spec.mps_pipe, read_only=False),
        VolumeSpec(spec.mps_shared_memory, SHARED_MEMORY, read_only=False),
    ]


def _mount(volume: VolumeSpec) -> str:
    option = ",readonly" if volume.read_only else ""
    return "--mount=type=bind,source=%s,destination=%s%s" % (volume.source, volume.target, option)
