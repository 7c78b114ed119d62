"""Which runtime an attempt was launched with."""

from __future__ import annotations

from typing import Any

from apps.execution.node.containers import Docker, Podman
from apps.execution.node.runtimes import ProcessRuntime, TaskRuntime
from apps.execution.node.state_files import MemberFolder

KINDS: dict[str, type[TaskRuntime]] = {
    "podman": Podman,
    "docker": Docker,
    "process": ProcessRuntime,
}


def runtime_of(member: MemberFolder, config: dict[str, Any]) -> TaskRuntime:
    """The runtime that the attempt was launched with."""
    spec = member.read("spec.json")
    kind = str((spec or {}).get("runtime"))
    return KINDS[kind if kind in KINDS else _kind_by_files(member)](member, config)


def _kind_by_files(member: MemberFolder) -> str:
    """Of an attempt whose `spec.json` is damaged, by what its runtime has written."""
    if member.has("cid"):
        return "docker"
    return "podman" if member.has("pid") else "process"
