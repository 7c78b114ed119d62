"""Which variables a task finds. Those that decide about devices are the node's, not the task's."""

from __future__ import annotations

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
        "RPM_DEVICES",
    ]
)
PROCESS_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def container_environment(spec: Spec) -> dict[str, str]:
    """The variables given to a container on top of those of its image.

    A secret comes as the file `/run/secrets/NAME`, and `NAME_FILE` says where, as many images
    know it.

    `NVIDIA_VISIBLE_DEVICES=void` tells the toolkit's older hook to leave the container alone:
    devices come through CDI only. Empty values undo what the image sets.
    """
    return {
        **_harmless(spec.environment),
        **{"%s_FILE" % name: "/run/secrets/%s" % name for name in spec.secrets},
        "NVIDIA_VISIBLE_DEVICES": "void",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "LD_PRELOAD": "",
        "LD_AUDIT": "",
        **_device_variables(spec),
    }


def process_environment(spec: Spec) -> dict[str, str]:
    """All the variables of a task that runs without a container."""
    return {
        "PATH": PROCESS_PATH,
        "LANG": "C.UTF-8",
        **_harmless(spec.environment),
        **_harmless(spec.secrets),
        **_device_variables(spec),
    }


def is_replaced(name: str) -> bool:
    """Whether what a task sets under this name is not passed on."""
    return name in REPLACED_NAMES or name.startswith(REPLACED_PREFIXES)


def _harmless(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not is_replaced(name)}


def _device_variables(spec: Spec) -> dict[str, str]:
    devices = ",".join(device.uuid for device in spec.devices)
    return {"CUDA_VISIBLE_DEVICES": devices, "RPM_DEVICES": devices}
