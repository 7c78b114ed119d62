"""The verb `pull`: fetch an image once, however many ask for it, and say how far it is."""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
from typing import Any

from apps.execution.node import checks, clocks, files, homes
from apps.execution.node.runtimes import run_tool, tool_environment
from apps.execution.node.supervisor import detach

STEP_S = 0.1
PROGRESS_BYTES = 2000
WAIT_HIGHEST_S = 60


def pull(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Make an image present. Answers `present`, `pulling` or `failed` after at most `wait_s`.

    A failed pull is tried again by the next request.
    """
    runtime = request.get("runtime")
    if runtime == "process":
        return {"state": "present", "progress": ""}
    if runtime not in ("podman", "docker"):
        raise checks.refuse("runtime", "%.80r is not a container runtime" % (runtime,))
    image = checks.text(request, "image", checks.IMAGE)
    wait_s = checks.number(request, "wait_s", highest=WAIT_HIGHEST_S)
    if run_tool([runtime, "image", "inspect", "--", image], config).returncode == 0:
        return {"state": "present", "progress": ""}
    folder = os.path.join(home, "pulls", hashlib.sha256(image.encode()).hexdigest()[:32])
    os.makedirs(folder, mode=0o700, exist_ok=True)
    _ensure_puller(home, folder, [runtime, "pull", "--", image], config)
    return _await_result(folder, until=clocks.uptime_s() + wait_s)


def _ensure_puller(home: str, folder: str, command: list[str], config: dict[str, Any]) -> None:
    lock = files.take_lock(os.path.join(folder, "lock"), wait=False)
    if lock is None:
        return
    files.write_json(os.path.join(folder, "result.json"), {}, durable=False)
    detach(home, lambda: _fetch(home, folder, command, config), keep=(lock,))
    os.close(lock)


def _fetch(home: str, folder: str, command: list[str], config: dict[str, Any]) -> None:
    with open(os.path.join(folder, "log"), "wb") as log:
        try:
            code = subprocess.call(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=tool_environment(config),
            )
        except OSError as error:
            log.write(str(error).encode())
            code = 127
    files.write_json(os.path.join(folder, "result.json"), {"code": code}, durable=False)
    homes.ring(home)


def _await_result(folder: str, *, until: float) -> dict[str, Any]:
    while True:
        code = (files.read_json(os.path.join(folder, "result.json")) or {}).get("code")
        if code is not None:
            return {"state": "failed" if code else "present", "progress": _progress(folder)}
        left_s = until - clocks.uptime_s()
        if left_s <= 0 or not files.is_locked(os.path.join(folder, "lock")):
            return {"state": "pulling", "progress": _progress(folder)}
        select.select([], [], [], min(STEP_S, left_s))


def _progress(folder: str) -> str:
    try:
        with open(os.path.join(folder, "log"), "rb") as source:
            return source.read()[-PROGRESS_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""
