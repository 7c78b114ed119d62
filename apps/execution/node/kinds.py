"""Which runtime an attempt was launched with."""

from __future__ import annotations

from typing import Any

from apps.execution.node.containers import Docker, Podman
from apps.execution.node.homes import Attempt
from apps.execution.node.runtimes import Process, Runtime

KINDS: dict[str, type[Runtime]] = {"podman": Podman, "docker": Docker, "process": Process}


def runtime_of(attempt: Attempt, config: dict[str, Any]) -> Runtime:
    """The runtime that the attempt was launched with."""
    spec = attempt.read("spec.json")
    kind = _kind_by_files(attempt) if spec is None else spec.get("runtime", "process")
    return KINDS[kind](attempt, config)


def _kind_by_files(attempt: Attempt) -> str:
    """Of an attempt whose `spec.json` is damaged, by what its runtime has written."""
    if attempt.has("cid"):
        return "docker"
    return "podman" if attempt.has("pid") else "process"
