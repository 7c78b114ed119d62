"""The verb `probe`: what the node is and has."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import socket
from typing import Any

from apps.execution.node import devices, mps, request_fields
from apps.execution.node.environment import PROCESS_PATH
from apps.execution.node.prune import ensure_pruned
from apps.execution.node.runtimes import run_tool

# What bounds how many exchanges reach a node at a time, and how long one may be silent.
SSHD_LIMITS = ("maxsessions", "maxstartups", "clientaliveinterval", "clientalivecountmax")
MEBIBYTE = 1024 * 1024


def probe(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Devices, CPU, memory, disk, network, runtimes and their versions.

    The devices in `simulated_devices` are answered back marked as simulated, behind real ones.
    """
    with contextlib.suppress(OSError):
        ensure_pruned(home, config)
    found = devices.inventory()
    simulated = [
        _simulated(item) for item in request_fields.records(request, "simulated_devices", most=64)
    ]
    for index, device in enumerate(simulated, start=len(found["devices"])):
        device["index"] = index
    return {
        "hostname": socket.gethostname(),
        "machine_id": _machine_id(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "account": os.geteuid(),
        "nvidia": found["state"],
        "driver": found["driver"],
        "devices": found["devices"] + simulated,
        "cdi_names": sorted(devices.cdi_names())[:2000],
        "cpu_milli": len(os.sched_getaffinity(0)) * 1000,
        **_cpu_times(),
        "memory_mb": _memory("MemTotal"),
        "memory_free_mb": _memory("MemAvailable"),
        "disk_mb": shutil.disk_usage(home).total // MEBIBYTE,
        "disk_free_mb": shutil.disk_usage(home).free // MEBIBYTE,
        "network": _network(),
        "runtimes": _runtimes(config),
        "crashes": _crashes(home),
        "toolkit": _toolkit(config),
        "sshd": _sshd(config),
        "enforcement": mps.enforcement(found, config, account=os.geteuid()),
    }


def _simulated(item: dict[str, Any]) -> dict[str, Any]:
    model = item.get("model")
    if not isinstance(model, str) or len(model) > 200:
        raise request_fields.refuse("simulated_devices.model", "not a short text")
    return {
        "uuid": request_fields.text(item, "uuid", request_fields.DEVICE_UUID),
        "model": model,
        "memory_mb": request_fields.whole(item, "memory_mb", lowest=0, highest=10**9),
        "used_mb": 0,
        "utilisation_percent": None,
        "cdi": request_fields.text(item, "cdi", request_fields.CDI_NAME) if item.get("cdi") else "",
        "simulated": True,
    }


def _machine_id() -> str:
    """Tells this system from others; empty where it has no number. Hashed: it is not for others."""
    try:
        with open("/etc/machine-id", "rb") as source:
            number = source.read(64).strip()
    except OSError:
        return ""
    return hashlib.sha256(b"rpm-node:" + number).hexdigest()[:32] if number else ""


def _cpu_times() -> dict[str, int]:
    """Milliseconds since boot of all CPUs together, and how many of them they were busy."""
    with open("/proc/stat", encoding="ascii") as source:
        ticks = [int(one) for one in source.readline().split()[1:9]]
    waiting = ticks[3] + ticks[4]
    ms = 1000 // os.sysconf("SC_CLK_TCK")
    return {"cpu_ms": sum(ticks) * ms, "cpu_busy_ms": (sum(ticks) - waiting) * ms}


def _memory(field: str) -> int:
    with open("/proc/meminfo", encoding="ascii") as source:
        for line in source:
            if line.startswith(field + ":"):
                return int(line.split()[1]) // 1024
    return 0


def _network() -> list[dict[str, Any]]:
    """Interfaces other than loopback with the bytes they carried since boot."""
    interfaces = []
    with open("/proc/net/dev", encoding="ascii") as source:
        for line in source.readlines()[2:]:
            name, _, counters = line.partition(":")
            fields = counters.split()
            if name.strip() != "lo":
                interfaces.append(
                    {
                        "name": name.strip(),
                        "received_bytes": int(fields[0]),
                        "sent_bytes": int(fields[8]),
                        "physical": os.path.exists("/sys/class/net/%s/device" % name.strip()),
                    }
                )
    return interfaces


def _runtimes(config: dict[str, Any]) -> dict[str, str]:
    """Container runtimes that answer, with the version each says."""
    commands = {
        "podman": ["podman", "version", "--format={{.Client.Version}}"],
        "docker": ["docker", "version", "--format={{.Server.Version}}"],
    }
    answers = {name: run_tool(command, config) for name, command in commands.items()}
    return {
        name: done.stdout.decode(errors="replace").strip()
        for name, done in answers.items()
        if done.returncode == 0
    }


def _toolkit(config: dict[str, Any]) -> str:
    """The NVIDIA toolkit's version line, which makes the CDI names; empty without it."""
    done = run_tool(["nvidia-ctk", "--version"], config)
    lines = done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []
    return lines[0].strip()[:200] if lines else ""


def _sshd(config: dict[str, Any]) -> dict[str, str]:
    """The limits that sshd has by its own word; empty where this account may not ask.

    Blocks for single users or addresses (`Match`) can say otherwise.
    """
    places = "%s:/usr/sbin:/sbin" % (os.environ.get("PATH") or PROCESS_PATH)
    program = shutil.which("sshd", path=places)
    done = run_tool([program, "-T"], config) if program is not None else None
    if done is None or done.returncode != 0:
        return {}
    lines = done.stdout.decode(errors="replace").splitlines()
    settings = dict(line.split(" ", 1) for line in lines if " " in line)
    return {name: settings[name][:200] for name in SSHD_LIMITS if name in settings}


def _crashes(home: str) -> str:
    """The last lines of traces that supervisors left; empty on a healthy node."""
    try:
        with open(os.path.join(home, "crashes.log"), encoding="utf-8", errors="replace") as source:
            return source.read()[-4000:]
    except FileNotFoundError:
        return ""
