"""GPUs of the node: through pynvml where it is installed, and the names that CDI gives them."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import site
from typing import Any, Iterator

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
MEBIBYTE = 1024 * 1024


def inventory() -> dict[str, Any]:
    """The NVIDIA devices, and in words why there are none.

    `state` is "ok", "no NVIDIA driver", "pynvml is not installed", or the driver's own complaint.
    """
    nvml, state = _driver()
    if nvml is None:
        return {"state": state, "driver": "", "devices": []}
    try:
        names = cdi_names()
        devices = [_device(nvml, index, names) for index in range(nvml.nvmlDeviceGetCount())]
        return {
            "state": "ok",
            "driver": _text(nvml.nvmlSystemGetDriverVersion()),
            "devices": devices,
        }
    except nvml.NVMLError as error:
        return {"state": "the NVIDIA driver says: %s" % error, "driver": "", "devices": []}
    finally:
        nvml.nvmlShutdown()


def device_processes(members: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Who computes on the devices.

    Args:
        members: first process of each running member -> its identity.

    Returns:
        uuid, pid, memory in 2^20 bytes (0 where the driver does not tell), and `member`: the
        identity, or None when the process is not ours.
    """
    nvml, _ = _driver()
    if nvml is None:
        return []
    found = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            found += [_process(process, uuid, members) for process in processes]
    except nvml.NVMLError:
        # A device that falls off the bus while it is asked: the next probe names it.
        pass
    finally:
        nvml.nvmlShutdown()
    return found


def _process(process: Any, uuid: str, members: dict[int, dict[str, Any]]) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "pid": process.pid,
        "memory_mb": (process.usedGpuMemory or 0) // MEBIBYTE,
        "member": _member_of(process.pid, members),
    }


def cdi_names(folders: tuple[str, ...] = CDI_FOLDERS) -> set[str]:
    """Fully qualified names of all devices that CDI files of the node define."""
    names: set[str] = set()
    for folder in folders:
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            path = os.path.join(folder, name)
            if name.endswith((".json", ".yaml", ".yml")):
                # Somebody may be replacing the file, or keep it to themselves.
                with (
                    contextlib.suppress(OSError),
                    open(path, encoding="utf-8", errors="replace") as source,
                ):
                    names.update(_names_in(source.read()))
    return names


def _names_in(content: str) -> Iterator[str]:
    """Device names in one CDI file; of YAML, which nodes cannot parse, only two kinds of line."""
    try:
        spec = json.loads(content)
    except ValueError:
        spec = None
    if spec is not None:
        devices = spec.get("devices") if isinstance(spec, dict) else None
        for device in devices if isinstance(devices, list) else []:
            if isinstance(device, dict):
                yield "%s=%s" % (spec.get("kind"), device.get("name"))
        return
    kind = re.search(r"^kind:\s*[\"']?([^\s\"']+)", content, re.MULTILINE)
    section = content.partition("\ndevices:")[2]
    for match in re.finditer(r"^(?:- |\s+- |\s+)name:\s*[\"']?([^\s\"']+)", section, re.MULTILINE):
        if kind:
            yield "%s=%s" % (kind.group(1), match.group(1))


def _driver() -> tuple[Any, str]:
    """The module pynvml with the driver opened, or None and the reason."""
    # The helper starts without site-packages, which costs time that only this needs.
    site.main()
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        has_driver = os.path.exists("/proc/driver/nvidia/version")
        return None, "pynvml is not installed" if has_driver else "no NVIDIA driver"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_LibraryNotFound:
        return None, "no NVIDIA driver"
    except nvml.NVMLError as error:
        return None, "the NVIDIA driver says: %s" % error
    return nvml, ""


def _device(nvml: Any, index: int, names: set[str]) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    wanted = ("nvidia.com/gpu=%s" % uuid, "nvidia.com/gpu=%d" % index)
    return {
        "index": index,
        "uuid": uuid,
        "model": _text(nvml.nvmlDeviceGetName(handle)),
        "memory_mb": memory.total // MEBIBYTE,
        "used_mb": memory.used // MEBIBYTE,
        "utilisation_percent": _utilisation(nvml, handle),
        "cdi": next((name for name in wanted if name in names), ""),
        "simulated": False,
    }


def _utilisation(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except nvml.NVMLError:
        # Devices split by MIG do not tell.
        return None


def _member_of(pid: int, members: dict[int, dict[str, Any]]) -> dict[str, Any] | None:
    for _ in range(256):
        if pid in members:
            return members[pid]
        pid = _parent_of(pid)
        if pid <= 1:
            break
    return None


def _parent_of(pid: int) -> int:
    try:
        with open("/proc/%d/stat" % pid, "rb") as source:
            return int(source.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
