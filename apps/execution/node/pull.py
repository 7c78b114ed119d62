"""The verb `pull`: fetch an image once, however many ask for it, and say how far it is."""

from __future__ import annotations

import hashlib
import os
import re
import select
import subprocess
from typing import IO, Any, NamedTuple

from apps.execution.node import (
    arguments,
    clocks,
    files,
    images,
    registry_login,
    request_fields,
    state_files,
)
from apps.execution.node.detached_process import detach
from apps.execution.node.image_lookup import RuntimeFailure, find_image
from apps.execution.node.prune import note_image
from apps.execution.node.registry_login import PullLogin
from apps.execution.node.runtimes import tool_environment

STEP_S = 0.1
PROGRESS_BYTES = 2000
WAIT_HIGHEST_S = 60
LINE_BYTES = 1024 * 1024
# Of a layer, in full or as docker shortens it.
DIGEST = re.compile(rb"(?:sha256:)?[0-9a-f]{12,}")


class _ImagePull(NamedTuple):
    """An image, by its digest if there is one, and whose it is."""

    tool: str
    reference: str
    login: PullLogin | None

    @property
    def name(self) -> str:
        """Of the folder: what a registry refuses to one group, another may get."""
        revision = self.login.revision if self.login else ""
        words = "%s %s %s" % (self.tool, self.reference, revision)
        return hashlib.sha256(words.encode()).hexdigest()[:32]


def pull(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Make an image present. Answers `present`, `pulling` or `failed` after at most `wait_s`.

    With `always` the registry is asked even for an image that is here: it says whether these
    credentials may have it. A pull that has ended is made again by the next request, unless this
    is the one that it asks for (`pull_id`, from the answer to an earlier one).
    """
    tool = request.get("runtime")
    if tool == "process":
        return {"state": "present", "progress": ""}
    if tool not in ("podman", "docker"):
        raise request_fields.refuse("runtime", "%.80r is not a container runtime" % (tool,))
    digest = images.digest_of(request, "digest")
    reference = images.reference(request_fields.image(request), digest)
    wanted = _ImagePull(tool, reference, registry_login.login_of(request))
    wait_s = request_fields.number(request, "wait_s", highest=WAIT_HIGHEST_S)
    asked = {"pull_id": request.get("pull_id", "")}
    pull_id = request_fields.text(asked, "pull_id", request_fields.PULL_ID)
    if request.get("always") is not True:
        found = _found(wanted, config)
        if found is not None:
            note_image(home, wanted.tool, wanted.reference)
            return _present(found)
    folder = os.path.join(home, "pulls", wanted.name)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if not pull_id or not _is_over(_result(folder), pull_id):
        _ensure_puller(home, folder, wanted, config)
    return _await_result(folder, wanted, config, until=clocks.uptime_s() + wait_s)


def _found(wanted: _ImagePull, config: dict[str, Any]) -> images.LocalImage | None:
    """The image; None also where the runtime fails: it says why when it is to fetch it."""
    try:
        return find_image(wanted.tool, wanted.reference, config)
    except RuntimeFailure:
        return None


def _present(found: images.LocalImage) -> dict[str, Any]:
    return {
        "state": "present",
        "progress": "",
        "image_id": found.image_id,
        "digest": found.digest,
    }


def _ensure_puller(home: str, folder: str, wanted: _ImagePull, config: dict[str, Any]) -> None:
    lock = files.take_lock(os.path.join(folder, "lock"), wait=False)
    if lock is None:
        return
    pull_id = os.urandom(8).hex()
    files.write_json(os.path.join(folder, "result.json"), {"pull_id": pull_id}, durable=False)
    detach(home, lambda: _fetch(home, folder, wanted, config, pull_id), keep=(lock,))
    os.close(lock)


def _result(folder: str) -> dict[str, Any]:
    return files.read_json(os.path.join(folder, "result.json")) or {}


def _is_over(result: dict[str, Any], pull_id: str) -> bool:
    return result.get("pull_id") == pull_id and result.get("code") is not None


def _fetch(
    home: str, folder: str, wanted: _ImagePull, config: dict[str, Any], pull_id: str
) -> None:
    with open(os.path.join(folder, "log"), "wb", buffering=0) as log:
        try:
            code = _fetched(home, wanted, config, log)
        except OSError as error:
            log.write(str(error).encode())
            code = 127
    if code == 0:
        # Only now: names that no registry knows are many, and would be kept for ever.
        note_image(home, wanted.tool, wanted.reference)
    result = {"pull_id": pull_id, "code": code}
    files.write_json(os.path.join(folder, "result.json"), result, durable=False)
    state_files.notify(home)


def _fetched(home: str, wanted: _ImagePull, config: dict[str, Any], log: IO[bytes]) -> int:
    """The runtime's exit code; what it says goes into the log."""
    if wanted.login is None:
        process = _started(arguments.pull(wanted.tool, wanted.reference), config, log)
        return process.wait()
    with registry_login.login_file(home, config, wanted.name, wanted.login) as folder:
        command = arguments.pull(wanted.tool, wanted.reference, login_folder=folder)
        process = _started(command, config, subprocess.PIPE)
        # Through here: a registry may repeat what it was sent in its words.
        while process.stdout and (line := process.stdout.readline(LINE_BYTES)):
            log.write(registry_login.masked(line, wanted.login))
        return process.wait()


def _started(
    command: list[str], config: dict[str, Any], output: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=tool_environment(config),
    )


def _await_result(
    folder: str, wanted: _ImagePull, config: dict[str, Any], *, until: float
) -> dict[str, Any]:
    while True:
        result = _result(folder)
        code = result.get("code")
        if code is not None:
            found = _found(wanted, config)
            if code == 0 and found is not None:
                return _present(found)
            return {"state": "failed", "progress": _progress(folder)}
        left_s = until - clocks.uptime_s()
        if left_s <= 0 or not files.is_locked(os.path.join(folder, "lock")):
            pull_id = result.get("pull_id", "")
            return {"state": "pulling", "progress": _progress(folder), "pull_id": pull_id}
        select.select([], [], [], min(STEP_S, left_s))


def _progress(folder: str) -> str:
    """The runtime's last words, without digests: by that of a private layer others get it.

    A runtime does not ask a registry for a layer that the node has, whichever group fetched it.
    """
    try:
        with open(os.path.join(folder, "log"), "rb") as source:
            words = DIGEST.sub(b"...", source.read())
            return words[-PROGRESS_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""
