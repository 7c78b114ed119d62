"""The verb `preflight`: start a container or process of our own as tasks get theirs.

The image of the container holds one program that ends at once with 0, so that no registry is asked.
"""

from __future__ import annotations

import io
import os
import platform
import struct
import subprocess
import tarfile
from typing import Any

from apps.execution.node import allowlist, arguments, files, request_fields, state_files
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.private_files import ids_of
from apps.execution.node.runtimes import run_tool
from apps.execution.node.specs import (
    NETWORKS,
    RUNTIMES,
    MemberIdentity,
    Spec,
    device_of,
    one_of,
    refuse_process,
    user_of,
)

IMAGE = "localhost/rpm-preflight:1"
PROGRAM = "/preflight"
# exit(0), and the number by which ELF knows the machine.
PROGRAMS = {
    "x86_64": (62, bytes.fromhex("31ff6a3c580f05")),
    "aarch64": (183, bytes.fromhex("000080d2a80b80d2010000d4")),
}
START_TIMEOUT_S = 60
TOOL_TIMEOUT_S = 20
# As long as another one takes.
LOCK_LIMIT_S = 2 * START_TIMEOUT_S + 3 * TOOL_TIMEOUT_S
DETAIL_CHARS = 1000


def preflight(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Start one container with a device, limits and network as tasks get them, or one process.

    Answers `passed`, or `failed` with the runtime's own words, or those of the node's list.
    """
    runtime = one_of(request, "runtime", RUNTIMES)
    spec = _spec_of(request, runtime)
    try:
        refuse_process(request, runtime)
        allowlist.check(spec, home)
    except RequestRefusal as refusal:
        detail = refusal.detail[:DETAIL_CHARS]
    else:
        detail = _try_process(spec) if runtime == "process" else _try_start(home, config, spec)
    return {"state": "failed" if detail else "passed", "detail": detail}


def _try_process(spec: Spec) -> str:
    """Words of what went wrong; empty when a process ran as tasks' processes do."""
    uid, gid = ids_of(spec.user) or (None, None)
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", ":"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            user=uid,
            group=gid,
            extra_groups=None if uid is None else [],
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:DETAIL_CHARS]
    return _words(done)


def _spec_of(request: dict[str, Any], runtime: str) -> Spec:
    return Spec(
        identity=MemberIdentity("preflight", 1, 0),
        runtime=runtime,
        image=IMAGE,
        command=(PROGRAM,),
        environment={},
        secrets={},
        working_dir="",
        devices=tuple(
            device_of(item) for item in request_fields.records(request, "devices", most=1)
        ),
        volumes=(),
        cpu_milli=request_fields.whole(request, "cpu_milli", lowest=0, highest=10**7),
        memory_mb=request_fields.whole(request, "memory_mb", lowest=0, highest=10**9),
        shm_mb=request_fields.whole(request, "shm_mb", lowest=0, highest=10**9),
        pids=request_fields.whole(request, "pids", lowest=1, highest=4_194_304),
        user=user_of(request, is_required=runtime != "process"),
        network=one_of(request, "network", NETWORKS),
        read_only=False,
    )


def _try_start(home: str, config: dict[str, Any], spec: Spec) -> str:
    """Words of what went wrong; empty when the container ran and ended with 0."""
    folder = os.path.join(home, "preflight")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with files.locked(os.path.join(folder, "lock"), limit_s=LOCK_LIMIT_S):
        return _try_container(home, folder, config, spec)


def _try_container(home: str, folder: str, config: dict[str, Any], spec: Spec) -> str:
    tool, name = spec.runtime, state_files.container_name(config["installation"], spec.identity)
    problem = _ensure_image(tool, config)
    if problem:
        return problem
    # One that an earlier helper left when it was killed.
    remove = [tool, "rm", "--force", "--volumes", "--", name]
    run_tool(remove, config, timeout_s=TOOL_TIMEOUT_S)
    for leftover in ("pid", "cid"):
        if os.path.exists(os.path.join(folder, leftover)):
            os.unlink(os.path.join(folder, leftover))
    files.write_bytes(os.path.join(folder, "env"), b"", durable=False)
    paths = arguments.ContainerPaths(name, config["installation"], home, folder)
    start = arguments.podman_run if tool == "podman" else arguments.docker_run
    done = run_tool(start(spec, paths), config, timeout_s=START_TIMEOUT_S)
    removed = run_tool(remove, config, timeout_s=TOOL_TIMEOUT_S)
    return _words(done) or _words(removed, is_gone_fine=True)


def _ensure_image(tool: str, config: dict[str, Any]) -> str:
    """Words of what went wrong; empty when the image is there."""
    inspect = [tool, "image", "inspect", "--format={{.Id}}", "--", IMAGE]
    if run_tool(inspect, config, timeout_s=TOOL_TIMEOUT_S).returncode == 0:
        return ""
    machine = PROGRAMS.get(platform.machine())
    if machine is None:
        raise RequestRefusal("not_allowed", "no preflight program for %s" % platform.machine())
    done = run_tool(
        [tool, "import", "-", IMAGE], config, stdin=_archive(*machine), timeout_s=START_TIMEOUT_S
    )
    return _words(done)


def _archive(machine: int, code: bytes) -> bytes:
    """A root file system with the one program, as a tar archive."""
    content = _program(machine, code)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name in ("dev", "etc", "proc", "run", "sys", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        member = tarfile.TarInfo(PROGRAM.lstrip("/"))
        member.size, member.mode = len(content), 0o755
        archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


def _program(machine: int, code: bytes) -> bytes:
    """A static executable of one segment (ELF, 64 bits, little-endian)."""
    base, header_bytes, segment_bytes = 0x400000, 64, 56
    start = header_bytes + segment_bytes
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    entry = (base + start, header_bytes, 0)
    sizes = (0, header_bytes, segment_bytes, 1, 0, 0, 0)
    header = identity + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, *entry, *sizes)
    size = start + len(code)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    return header + segment + code


def _words(done: subprocess.CompletedProcess[bytes], *, is_gone_fine: bool = False) -> str:
    if done.returncode == 0:
        return ""
    output = (done.stderr or done.stdout).decode(errors="replace").strip()
    if is_gone_fine and "no such container" in output.lower():
        return ""
    words = " ".join("".join(c if c.isprintable() else " " for c in output).split())
    return words[-DETAIL_CHARS:] or "%s ended with code %d" % (done.args[0], done.returncode)
