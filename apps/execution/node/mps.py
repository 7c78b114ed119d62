"""CUDA MPS: what holds a task to its share of a GPU, where the driver can.

The helper keeps one control daemon per device, user and kind of runtime (container or not):
started before the first task that needs it, started again when it died, ended after the last one.
Per user, because a daemon serves one user at a time and lets the next one wait until the programs
of the first are over; and because what breaks in one program takes all clients of its server along.

/run/rpm-mps/<of this home>/<of the daemon>/
    daemon.json   what it is for
    pipe/         its sockets, which the tasks get; elsewhere the path could be too long for one
    log/
<home>/mps-<of the daemon>.lock   held while it is started or ended
<attempt>/mps.json   which daemon the attempt uses
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import time
from functools import partial
from typing import Any, NamedTuple

from apps.execution.node import clocks, files, processes, state_files, task_files
from apps.execution.node.detached_process import detach
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.runtimes import tool_environment
from apps.execution.node.specs import Spec
from apps.execution.node.state_files import MemberFolder

PROGRAM = "nvidia-cuda-mps-control"
# The kernel keeps 15 letters of a program's name; control daemon and server share these.
KNOWN_AS = "nvidia-cuda-mps"
# In the environment of a control daemon, which its server inherits: the daemon's folder.
MARK = "RPM_MPS"
FOLDERS = "/run/rpm-mps"
SHARED_MEMORY = "/dev/shm"  # noqa: S108  # its folders there are closed to others
START_S = 10.0
QUIT_S = 5.0
# Another task may be starting or ending it.
LOCK_LIMIT_S = 60.0
STEP_S = 0.02
WORDS_BYTES = 1000
# Limits of memory and of threads need a GPU of the generation Volta and CUDA 11.5.
OLDEST_CAPABILITY = 70
OLDEST_CUDA = 11_050
# The new mount namespace is the daemon's alone: its server meets the containers in this /dev/shm.
MOUNT = 'mount --bind "$1" /dev/shm && shift && exec "$@"'


class MpsDaemon(NamedTuple):
    """A control daemon: for which device, for whose processes (`uid:gid`), in containers or not."""

    home: str
    device: str
    user: str
    is_contained: bool

    @property
    def name(self) -> str:
        """A short name, the same for all attempts that share it."""
        return _short("%s %s %s" % (self.device, self.user, self.is_contained))

    @property
    def folder(self) -> str:
        """Where its files are."""
        return os.path.join(_root(self.home), self.name)

    @property
    def pipe(self) -> str:
        """CUDA_MPS_PIPE_DIRECTORY of the daemon and its clients."""
        return os.path.join(self.folder, "pipe")

    @property
    def log(self) -> str:
        """CUDA_MPS_LOG_DIRECTORY of the daemon."""
        return os.path.join(self.folder, "log")

    @property
    def shared_memory(self) -> str:
        """What containers and server have in common as /dev/shm; empty without containers."""
        if not self.is_contained:
            return ""
        return os.path.join(SHARED_MEMORY, "rpm-mps-%s" % _short(self.home), self.name)


def enforcement(
    found: dict[str, Any], config: dict[str, Any], *, account: int
) -> dict[str, str] | None:
    """What holds tasks to their share of a device on this node.

    Args:
        found: the answer of `devices.inventory`.
        account: the user id under which the helper runs.

    Returns:
        `memory` and `compute`, each "mig", "mps" or "accounted", and in `detail` why it is no more
        than accounted. None without devices.
    """
    if not found["devices"]:
        return None
    if all(device["parent_uuid"] for device in found["devices"]):
        return {"memory": "mig", "compute": "mig", "detail": ""}
    lack = _missing_requirement(found, config, account)
    method = "accounted" if lack else "mps"
    return {"memory": method, "compute": method, "detail": lack}


def _missing_requirement(found: dict[str, Any], config: dict[str, Any], account: int) -> str:
    if _program(config) is None:
        return "%s is not installed" % PROGRAM
    if account != 0:
        return "the helper does not run as root, so it cannot start MPS for others"
    if found["capability"] < OLDEST_CAPABILITY:
        return "MPS cannot limit GPUs that are older than Volta"
    if found["cuda"] < OLDEST_CUDA:
        return "the driver is older than CUDA 11.5"
    return ""


def prepare(member: MemberFolder, spec: Spec, config: dict[str, Any]) -> Spec:
    """Have the daemon run that this task needs, and say in the specification where it is.

    Raises:
        RequestRefusal: it does not start; code `start_failed`. A task that was promised a limit
            does not run without one.
    """
    device = next((one for one in spec.devices if one.enforced_by == "mps"), None)
    if device is None:
        return spec
    daemon = MpsDaemon(member.home, device.uuid, spec.user or "0:0", spec.runtime != "process")
    # First of all: a process that looks for unneeded daemons meanwhile must find this.
    member.write("mps.json", {"name": daemon.name})
    _make_folders(daemon)
    with files.locked(_lock(daemon), limit_s=LOCK_LIMIT_S):
        if _pid_of(daemon) is None:
            _start(daemon, config)
    return spec._replace(mps_pipe=daemon.pipe, mps_shared_memory=daemon.shared_memory)


def update_daemons(home: str, config: dict[str, Any]) -> None:
    """Start daemons that died again, and end those that no task needs any more."""
    for daemon in daemons(home):
        if _is_needed(daemon) and _pid_of(daemon) is not None:
            continue
        lock = files.take_lock(_lock(daemon), wait=False)
        if lock is None:
            # Another process is at it.
            continue
        # Outside the exchange, whose caller waits for news of tasks.
        detach(home, partial(_update, daemon, config), keep=(lock,))
        os.close(lock)


def _update(daemon: MpsDaemon, config: dict[str, Any]) -> None:
    """Start or end the daemon as needed. Under its lock, in a process of its own."""
    # Checked again: a task may need it by now, or another process may have started it.
    if not _is_needed(daemon):
        _end(daemon, config)
    elif _pid_of(daemon) is None:
        # What does not work now is tried again by the next sync and the next launch.
        with contextlib.suppress(OSError, RequestRefusal, subprocess.SubprocessError):
            _start(daemon, config)


def daemons(home: str) -> list[MpsDaemon]:
    """The daemons of this helper that were started and not ended."""
    root = _root(home)
    found = []
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        kept = files.read_json(os.path.join(root, name, "daemon.json"))
        if kept is not None:
            found.append(MpsDaemon(home, kept["device"], kept["user"], kept["is_contained"]))
    return found


def is_server(pid: int, home: str) -> bool:
    """Whether the process is an MPS server that this helper's daemons started."""
    if _name_of(pid) != KNOWN_AS:
        return False
    return any(
        processes.is_marked(pid, one.folder, owner=_ids(one)[0], mark=MARK) for one in daemons(home)
    )


def start_command(daemon: MpsDaemon, program: str) -> list[str]:
    """Arguments that start the daemon as its user; pure."""
    command = [*_as_user(daemon.user), program, "-d"]
    if not daemon.shared_memory:
        return command
    own = ["unshare", "--mount", "--propagation=private", "--"]
    return [*own, "sh", "-c", MOUNT, "sh", daemon.shared_memory, *command]


def daemon_variables(daemon: MpsDaemon) -> dict[str, str]:
    """Variables of the daemon, and of the program that talks to it; pure."""
    return {
        "CUDA_VISIBLE_DEVICES": daemon.device,
        "CUDA_MPS_PIPE_DIRECTORY": daemon.pipe,
        "CUDA_MPS_LOG_DIRECTORY": daemon.log,
        MARK: daemon.folder,
    }


def _as_user(user: str) -> list[str]:
    if user == "0:0":
        return []
    uid, _, gid = user.partition(":")
    return ["setpriv", "--reuid=%s" % uid, "--regid=%s" % gid, "--clear-groups", "--"]


def _start(daemon: MpsDaemon, config: dict[str, Any]) -> None:
    program = _program(config)
    if program is None:
        raise RequestRefusal("start_failed", "MPS: %s is not installed any more" % PROGRAM)
    _make_folders(daemon)
    kept = {name: value for name, value in daemon._asdict().items() if name != "home"}
    files.write_json(os.path.join(daemon.folder, "daemon.json"), kept, durable=False)
    # What a dead daemon left would be taken for a living one's.
    task_files.remove(_pid_file(daemon))
    words = os.path.join(daemon.folder, "start.log")
    with open(words, "wb") as target:
        done = subprocess.run(
            start_command(daemon, program),
            stdin=subprocess.DEVNULL,
            # Not a pipe: the daemon would hold it open for ever.
            stdout=target,
            stderr=target,
            env={**tool_environment(config), **daemon_variables(daemon)},
            cwd="/",
            timeout=START_S,
            check=False,
        )
    until = clocks.uptime_s() + START_S
    while done.returncode == 0 and _pid_of(daemon) is None and clocks.uptime_s() < until:
        time.sleep(STEP_S)
    if _pid_of(daemon) is None:
        raise RequestRefusal("start_failed", "MPS does not start: %s" % _words(daemon, words))


def _end(daemon: MpsDaemon, config: dict[str, Any]) -> None:
    """Ask it to quit, make sure, and remove its files."""
    pid, program = _pid_of(daemon), _program(config)
    if pid is not None and program is not None:
        # It may not listen any more; it is killed below.
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [*_as_user(daemon.user), program],
                input=b"quit\n",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**tool_environment(config), **daemon_variables(daemon)},
                cwd="/",
                timeout=QUIT_S,
                check=False,
            )
        until = clocks.uptime_s() + QUIT_S
        while _pid_of(daemon) is not None and clocks.uptime_s() < until:
            time.sleep(STEP_S)
    # Daemon and servers.
    owner = _ids(daemon)[0]
    for left in processes.marked(daemon.folder, owner=owner, mark=MARK):
        processes.send(
            left,
            signal.SIGKILL,
            lambda pid: processes.is_marked(pid, daemon.folder, owner=owner, mark=MARK),
        )
    for folder in filter(None, (daemon.folder, daemon.shared_memory)):
        # What is left has no daemon any more; the next end of it tries again.
        with contextlib.suppress(OSError):
            task_files.remove(folder)


def _is_needed(daemon: MpsDaemon) -> bool:
    """Whether an attempt that has not ended uses it; asked under the daemon's lock."""
    return any(
        _uses(member, daemon)
        and not member.has("exit.json")
        and state_files.is_of_this_boot(member)
        for member in state_files.members(daemon.home)
    )


def _uses(member: MemberFolder, daemon: MpsDaemon) -> bool:
    """Any, where the file that names it is damaged."""
    kept = member.read("mps.json")
    return member.has("mps.json") if kept is None else kept.get("name") == daemon.name


def _make_folders(daemon: MpsDaemon) -> None:
    """Its user owns what it writes to; no other user gets past the folders above."""
    for folder in (FOLDERS, _root(daemon.home), daemon.folder):
        # The helper's umask closes them, and the daemon has to pass.
        task_files.ensure_folder(folder, 0o711)
    for folder in (daemon.pipe, daemon.log):
        task_files.ensure_folder(folder, 0o700, _ids(daemon))
    if daemon.shared_memory:
        # The outer folder keeps the node's own users out; what is mounted is the inner one.
        task_files.ensure_folder(os.path.dirname(daemon.shared_memory), 0o700)
        task_files.ensure_folder(daemon.shared_memory, 0o1777)  # as /dev/shm is


def _pid_of(daemon: MpsDaemon) -> int | None:
    """The living control daemon, by the file that it writes itself."""
    try:
        digits = task_files.read_end(_pid_file(daemon), owner=_ids(daemon)[0], most=20).strip()
    except OSError:
        return None
    pid = int(digits) if digits.isdigit() else 0
    is_living = processes.start_ticks(pid) is not None and _name_of(pid) == KNOWN_AS
    return pid if is_living else None


def _name_of(pid: int) -> str:
    try:
        with open("/proc/%d/comm" % pid, "rb") as source:
            return source.read().decode(errors="replace").strip()
    except OSError:
        return ""


def _words(daemon: MpsDaemon, path: str) -> str:
    """The daemon's output, or the end of its log."""
    log = os.path.join(daemon.log, "control.log")
    for name, owner in ((path, os.geteuid()), (log, _ids(daemon)[0])):
        with contextlib.suppress(OSError):
            content = task_files.read_end(name, owner=owner, most=WORDS_BYTES)
            words = content.decode(errors="replace").strip()
            if words:
                return words
    return "it said nothing"


def _program(config: dict[str, Any]) -> str | None:
    return shutil.which(PROGRAM, path=tool_environment(config)["PATH"])


def _ids(daemon: MpsDaemon) -> tuple[int, int]:
    """User and group of the daemon, which its folders and what it writes belong to."""
    uid, _, gid = daemon.user.partition(":")
    return int(uid), int(gid)


def _pid_file(daemon: MpsDaemon) -> str:
    return os.path.join(daemon.pipe, "%s.pid" % PROGRAM)


def _lock(daemon: MpsDaemon) -> str:
    return os.path.join(daemon.home, "mps-%s.lock" % daemon.name)


def _root(home: str) -> str:
    return os.path.join(FOLDERS, _short(home))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
