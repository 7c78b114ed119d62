"""Which variables a task finds. Those that decide about devices are the node's, not the task's."""

from __future__ import annotations

import os

from apps.execution.node.specs import Spec

# What a task or its image sets here could widen what it sees, or run code in the runtime's hooks
# before the container is closed (CVE-2025-23266 came in through LD_PRELOAD).
REPLACED_PREFIXES = ("NVIDIA_", "CUDA_MPS_")
REPLACED_NAMES = frozenset(
    [
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "GPU_DEVICE_ORDINAL",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "LD_AUDIT",
        "LD_PRELOAD",
        "RPM_CHECKPOINT_FILE",
        "RPM_DEVICES",
        "RPM_GPU_MEMORY_MB",
        "RPM_GPU_SHARE",
    ]
)
# Where a container sees its private files.
CHECKPOINT_FILE = "/run/rpm-checkpoint"
SECRETS_FOLDER = "/run/secrets"
PROCESS_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def container_environment(spec: Spec) -> dict[str, str]:
    """The variables given to a container on top of those of its image.

    A secret comes as the file `/run/secrets/NAME`, and `NAME_FILE` says where, as many images
    know it.

    `NVIDIA_VISIBLE_DEVICES=void` tells the toolkit's older hook to leave the container alone:
    devices come through CDI only. Empty values undo what the image sets.
    """
    return {
        **_sanitize(spec.environment),
        **_private_variables(spec, CHECKPOINT_FILE, SECRETS_FOLDER),
        "NVIDIA_VISIBLE_DEVICES": "void",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "LD_PRELOAD": "",
        "LD_AUDIT": "",
        **_device_variables(spec),
    }


def process_environment(spec: Spec, private: str = "/") -> dict[str, str]:
    """All the variables of a task that runs without a container.

    Args:
        private: the folder of its private files.
    """
    return {
        "PATH": PROCESS_PATH,
        "LANG": "C.UTF-8",
        **_sanitize(spec.environment),
        **_private_variables(
            spec, os.path.join(private, "checkpoint"), os.path.join(private, "secrets")
        ),
        **_device_variables(spec),
    }


def _private_variables(spec: Spec, checkpoint: str, secrets: str) -> dict[str, str]:
    """Paths only: every user who may inspect the process sees a variable's value."""
    paths = {"%s_FILE" % name: os.path.join(secrets, name) for name in spec.secrets}
    return {**_sanitize(paths), "RPM_CHECKPOINT_FILE": checkpoint}


def is_replaced(name: str) -> bool:
    """Whether what a task sets under this name is not passed on."""
    return name in REPLACED_NAMES or name.startswith(REPLACED_PREFIXES)


def _sanitize(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not is_replaced(name)}


def _device_variables(spec: Spec) -> dict[str, str]:
    devices = ",".join(device.uuid for device in spec.devices)
    return {"CUDA_VISIBLE_DEVICES": devices, "RPM_DEVICES": devices, **_share_variables(spec)}


def _share_variables(spec: Spec) -> dict[str, str]:
    """A task's share of a device, and the limits that MPS enforces on the task."""
    share = next((device for device in spec.devices if device.milli < 1000), None)
    if share is None:
        return {}
    variables = {"RPM_GPU_SHARE": "0.%03d" % share.milli}
    if share.memory_mb:
        variables["RPM_GPU_MEMORY_MB"] = str(share.memory_mb)
    if spec.mps_pipe:
        variables["CUDA_MPS_PIPE_DIRECTORY"] = spec.mps_pipe
        variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(max(share.milli // 10, 1))
        if share.memory_mb:
            # The daemon knows one device, so it is number 0 to its clients.
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = "0=%dM" % share.memory_mb
    return variables
