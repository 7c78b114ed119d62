"""GPUs of the node: through pynvml where it is installed, and the names that CDI gives them."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import site
from typing import Any, Callable, Iterator

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
MEBIBYTE = 1024 * 1024
# Numbers of slices lie beyond those of GPUs: slice 2 of GPU 0 is 102.
SLICES_PER_GPU = 100


def inventory() -> dict[str, Any]:
    """The NVIDIA devices, and in words what is wrong with them or why there are none.

    A GPU that is split (MIG) is not a device itself: its slices are, each with the UUID of the GPU
    as `parent_uuid`. One that does not answer is left out, and named in `state`. Otherwise `state`
    is "ok", "no NVIDIA driver", "pynvml is not installed", or the driver's own complaint.

    `cuda` is the newest CUDA that the driver knows (12040 is 12.4), `capability` the oldest compute
    capability among whole GPUs (90 is 9.0); 0 where unknown.
    """
    nothing = {"driver": "", "devices": [], "cuda": 0, "capability": 0}
    nvml, state = _driver()
    if nvml is None:
        return {"state": state, **nothing}
    try:
        found, complaints = _devices(nvml, cdi_names())
        return {
            "state": "; ".join(complaints) or "ok",
            "driver": _text(nvml.nvmlSystemGetDriverVersion()),
            "devices": [device for device, _ in found],
            "cuda": _query(nvml, "nvmlSystemGetCudaDriverVersion_v2", otherwise=0),
            "capability": min((capability for _, capability in found if capability), default=0),
        }
    except nvml.NVMLError as error:
        return {"state": _complaint(nvml, error), **nothing}
    finally:
        nvml.nvmlShutdown()


def device_processes(
    members: dict[int, dict[str, Any]], *, is_helpers: Callable[[int], bool] = lambda _: False
) -> list[dict[str, Any]]:
    """The processes that compute on the devices.

    Args:
        members: first process of each running member -> its identity.
        is_helpers: whether a process serves our tasks without being one; left out.

    Returns:
        uuid, pid, memory in 2^20 bytes (0 where the driver does not tell), and `member`: the
        identity, or None when the process is not ours.
    """
    nvml, _ = _driver()
    if nvml is None:
        return []
    found = []
    try:
        for handle in _all_handles(nvml):
            uuid = _text(_query(nvml, "nvmlDeviceGetUUID", handle, otherwise=""))
            processes = _processes(nvml, handle) if uuid else []
            others = [process for process in processes if not is_helpers(process.pid)]
            found += [_process(process, uuid, members) for process in others]
    finally:
        nvml.nvmlShutdown()
    return found


def _processes(nvml: Any, handle: Any) -> list[Any]:
    """Processes with a context of their own, and MPS clients, which some drivers list apart."""
    own = _query(nvml, "nvmlDeviceGetComputeRunningProcesses", handle, otherwise=[])
    clients = _query(nvml, "nvmlDeviceGetMPSComputeRunningProcesses", handle, otherwise=[])
    return list({process.pid: process for process in [*clients, *own]}.values())


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
                # The file may be in the middle of a replacement, or unreadable for the helper.
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
        return None, _complaint(nvml, error)
    return nvml, ""


def _devices(nvml: Any, names: set[str]) -> tuple[list[tuple[dict[str, Any], int]], list[str]]:
    """Each device with its compute capability (0 for a slice), and complaints about the others."""
    found: list[tuple[dict[str, Any], int]] = []
    complaints = []
    for index in range(nvml.nvmlDeviceGetCount()):
        # One that falls off the bus must not hide the others.
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            if not _is_split(nvml, handle):
                found.append((_device(nvml, handle, index, names), _capability(nvml, handle)))
                continue
            parent = _text(nvml.nvmlDeviceGetUUID(handle))
            for slot, one in _slices(nvml, handle):
                number = SLICES_PER_GPU * (index + 1) + slot
                device = _device(nvml, one, number, names, alias="%d:%d" % (index, slot))
                found.append(({**device, "parent_uuid": parent}, 0))
        except nvml.NVMLError as error:
            complaints.append("GPU %d: %s" % (index, error))
    return found, complaints


def _device(
    nvml: Any, handle: Any, index: int, names: set[str], *, alias: str = ""
) -> dict[str, Any]:
    """One device; `alias` is how CDI files number it if they do not name it by its UUID."""
    uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    wanted = ("nvidia.com/gpu=%s" % uuid, "nvidia.com/gpu=%s" % (alias or index))
    return {
        "index": index,
        "uuid": uuid,
        "model": _text(nvml.nvmlDeviceGetName(handle)),
        "memory_mb": memory.total // MEBIBYTE,
        "used_mb": memory.used // MEBIBYTE,
        "utilisation_percent": _utilisation(nvml, handle),
        "power_mw": _query(nvml, "nvmlDeviceGetPowerUsage", handle, otherwise=None),
        "cdi": next((name for name in wanted if name in names), ""),
        "simulated": False,
        "parent_uuid": "",
    }


def _is_split(nvml: Any, handle: Any) -> bool:
    """Whether the GPU is in MIG mode now; GPUs and drivers that know no MIG are whole."""
    current, _pending = _query(nvml, "nvmlDeviceGetMigMode", handle, otherwise=(0, 0))
    return bool(current)


def _slices(nvml: Any, handle: Any) -> Iterator[tuple[int, Any]]:
    for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        one = _query(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, slot, otherwise=None)
        if one is not None:
            yield slot, one


def _all_handles(nvml: Any) -> Iterator[Any]:
    """Handles of all devices that answer: whole GPUs, and the slices of those that are split."""
    for index in range(_query(nvml, "nvmlDeviceGetCount", otherwise=0)):
        handle = _query(nvml, "nvmlDeviceGetHandleByIndex", index, otherwise=None)
        if handle is None:
            continue
        if _is_split(nvml, handle):
            yield from (one for _, one in _slices(nvml, handle))
        else:
            yield handle


def _capability(nvml: Any, handle: Any) -> int:
    question = "nvmlDeviceGetCudaComputeCapability"
    major, minor = _query(nvml, question, handle, otherwise=(0, 0))
    return int(major) * 10 + int(minor)


def _utilisation(nvml: Any, handle: Any) -> int | None:
    """In percent; slices do not tell."""
    rates = _query(nvml, "nvmlDeviceGetUtilizationRates", handle, otherwise=None)
    return None if rates is None else int(rates.gpu)


def _query(nvml: Any, question: str, *arguments: Any, otherwise: Any) -> Any:
    """What the driver answers, or `otherwise` where it, or an old pynvml, does not know."""
    try:
        ask = getattr(nvml, question, None)
        return otherwise if ask is None else ask(*arguments)
    except nvml.NVMLError:
        return otherwise


def _complaint(nvml: Any, error: Any) -> str:
    words = "the NVIDIA driver says: %s" % error
    if error.value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        words += " (its libraries were updated: reload its kernel modules, or restart the node)"
    return words


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
