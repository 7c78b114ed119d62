"""Whether a machine can be a node: every finding with the command that fixes it.

Pure: from the node's report of itself and a few facts of the connection to sentences.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from apps.execution.protocol.answers import NodeInventory

OLDEST_PYTHON = (3, 9)
OLDEST = {"podman": (4, 1), "docker": (25, 0)}
# Takes quotes for its own in files of variables: one can swallow those behind it.
# https://github.com/containers/podman/issues/19565
MISREADS_VARIABLES = ("podman", "4.7.0")
SKEW_S = 2.0
DISK_FREE_MB = 10 * 1024
DISK_FREE_SHARE = 0.05
# Exchanges at a time in one connection, and one session for an administrator.
SESSIONS = 9
UPGRADES = {
    "podman": "apt-get install podman uidmap (Debian 12, Ubuntu 24.04 or newer: podman 4.3 and up)",
    "docker": "apt-get install docker.io (or docker-ce of Docker's own source)",
}
CDI_FIX = (
    "apt-get install nvidia-container-toolkit; "
    "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
)
_CONTAINER, _PROCESS = "container", "process"
_NO_PROCESSES = "does not allow tasks without a container"
# A machine that is no node yet has no setting: its form has.
_ALLOW_PROCESSES = "tick “Allow plain processes”, then check again"
_OWN_ACCOUNT = "use another account than root: the script of manage.py node prepare makes one"
_ROOT = "root"
_COMMAND = re.compile(r"(apt-get|usermod|loginctl|nvidia-ctk|manage\.py) [^(,]+")
# By what the runtime or the node's list says of a container or process that does not start.
START_FIXES = {
    "cdi": CDI_FIX,
    "newuidmap": "apt-get install uidmap",
    "docker.sock": "usermod --append --groups docker ACCOUNT",
    "cgroup": "loginctl enable-linger ACCOUNT, and delegate cpu, memory and pids to its user slice",
    "subuid": "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ACCOUNT",
    "in this node's list": "add the runtime to the list that it names, as root of the node",
    _NO_PROCESSES: "manage.py node set NODE --allow-process",
    "no space left": "free space for the images of the runtime",
}


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """The result of one check. `fix` is a command or what to do; empty where it is fine."""

    name: str
    is_fine: bool
    words: str
    fix: str = ""

    @property
    def is_command(self) -> bool:
        """Whether the fix can be pasted into a shell as it is."""
        return _COMMAND.fullmatch(self.fix) is not None

    @property
    def is_blocking(self) -> bool:
        """Whether the machine cannot be added because of it."""
        return self.name in {_CONTAINER, _PROCESS} and not self.is_fine


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """What was seen of the node from outside.

    Args:
        skew_s: how far its wall clock is ahead of ours; None where that is unknown.
        is_restricted: its key runs nothing but the helper; None where there is no key.
        shell: the account's login shell, empty where unknown.
        sessions: MaxSessions of its sshd for the account, None where unknown.
        account: its name, for commands that fix something; empty where unknown.
    """

    skew_s: float | None = None
    is_restricted: bool | None = None
    shell: str = ""
    sessions: int | None = None
    account: str = ""


def examine(
    inventory: NodeInventory,
    connection: ConnectionFacts,
    *,
    runtime: str,
    problem: str = "",
    is_new: bool = False,
) -> list[PreflightFinding]:
    """Everything that can be said of the machine, in the order in which to fix it.

    Args:
        runtime: podman, docker or process.
        problem: the runtime's words where it started no container; empty where it did.
        is_new: the machine is no node yet.
    """
    findings = [
        _python(inventory),
        *_account(connection),
        *_runtime(inventory, runtime),
        *_gpus(inventory, runtime),
        *_container(runtime, problem),
        _disk(inventory),
        *_clock(connection),
        *_crashes(inventory),
    ]
    if is_new and _NO_PROCESSES in problem:
        findings = [
            replace(one, fix=_ALLOW_PROCESSES) if one.is_blocking else one for one in findings
        ]
    if not connection.account:
        return findings
    account = connection.account
    return [replace(one, fix=one.fix.replace("ACCOUNT", account)) for one in findings]


def version_of(words: str) -> tuple[int, int] | None:
    """Major and minor number out of what a program says; None where there is none."""
    found = re.search(r"(\d+)\.(\d+)", words)
    return (int(found[1]), int(found[2])) if found else None


def _python(inventory: NodeInventory) -> PreflightFinding:
    version = version_of(inventory.python)
    is_fine = version is not None and version >= OLDEST_PYTHON
    fix = "" if is_fine else "apt-get install python3 (3.9 or newer)"
    return PreflightFinding("python", is_fine, f"Python {inventory.python}", fix)


def _account(connection: ConnectionFacts) -> Iterator[PreflightFinding]:
    is_root = connection.account == _ROOT
    if connection.shell:
        is_plain = connection.shell in {"/bin/sh", "/bin/dash", "/usr/bin/dash"}
        # Nobody should lose the shell of root.
        fix = _OWN_ACCOUNT if is_root else "usermod --shell /bin/sh ACCOUNT"
        fix = "" if is_plain else fix
        yield PreflightFinding("shell", is_plain, f"the account's shell is {connection.shell}", fix)
    if connection.is_restricted is not None:
        words = (
            "the key runs the helper only"
            if connection.is_restricted
            else "the key may run any command on the machine"
        )
        fix = _OWN_ACCOUNT if is_root else "run the script of manage.py node prepare on it"
        fix = "" if connection.is_restricted else fix
        yield PreflightFinding("key", connection.is_restricted, words, fix)
    if connection.sessions is not None:
        is_fine = connection.sessions >= SESSIONS
        fix = "" if is_fine else f"MaxSessions {SESSIONS} or more in sshd_config, reload ssh"
        yield PreflightFinding(
            "sshd", is_fine, f"{connection.sessions} sessions in a connection", fix
        )


def _runtime(inventory: NodeInventory, runtime: str) -> Iterator[PreflightFinding]:
    if runtime not in OLDEST:
        return
    words = inventory.runtimes.get(runtime)
    if words is None:
        where = "and let the account reach it: usermod --append --groups docker ACCOUNT"
        fix = f"{UPGRADES[runtime]}{', ' + where if runtime == 'docker' else ''}"
        yield PreflightFinding(runtime, is_fine=False, words=f"{runtime} does not answer", fix=fix)
        return
    version, wanted = version_of(words), OLDEST[runtime]
    is_fine = version is not None and version >= wanted
    fix = "" if is_fine else f"{UPGRADES[runtime]}: {wanted[0]}.{wanted[1]} or newer is needed"
    if (runtime, words.strip()) == MISREADS_VARIABLES:
        is_fine, fix = False, f"{UPGRADES[runtime]}: 4.7.0 reads variables with quotes otherwise"
    yield PreflightFinding(runtime, is_fine, f"{runtime} {words}", fix)


def _gpus(inventory: NodeInventory, runtime: str) -> Iterator[PreflightFinding]:
    real = [device for device in inventory.devices if not device.simulated]
    if not real:
        # A machine without GPUs is a node like any other.
        yield PreflightFinding("gpus", is_fine=True, words=f"no NVIDIA GPU: {inventory.nvidia}")
        return
    yield PreflightFinding(
        "gpus", is_fine=True, words=f"{len(real)} GPU, driver {inventory.driver}"
    )
    unnamed = [device for device in real if not device.cdi]
    if runtime in OLDEST and unnamed:
        words = f"no CDI file names {unnamed[0].uuid} ({len(unnamed)} of {len(real)} GPU)"
        yield PreflightFinding("cdi", is_fine=False, words=words, fix=CDI_FIX)
    elif runtime in OLDEST:
        yield PreflightFinding("cdi", is_fine=True, words="every GPU has a CDI name")


def _container(runtime: str, problem: str) -> Iterator[PreflightFinding]:
    if runtime not in OLDEST:
        yield _process(problem)
        return
    if not problem:
        words = "a container starts, with limits and network as tasks get them"
        yield PreflightFinding(_CONTAINER, is_fine=True, words=words)
        return
    fix = _start_fix(problem) or (
        f"as the account of the node: {runtime} run --rm docker.io/library/hello-world"
    )
    yield PreflightFinding(
        _CONTAINER, is_fine=False, words=f"no container starts: {problem}", fix=fix
    )


def _process(problem: str) -> PreflightFinding:
    if not problem:
        return PreflightFinding(
            _PROCESS, is_fine=True, words="a process starts, as those of tasks do"
        )
    fix = _start_fix(problem) or "as the account of the node: /bin/sh -c :"
    return PreflightFinding(_PROCESS, is_fine=False, words=f"no process starts: {problem}", fix=fix)


def _start_fix(problem: str) -> str:
    """What fixes a start that fails with these words; empty where nothing is known of them."""
    lowered = problem.lower()
    return next((fix for word, fix in START_FIXES.items() if word in lowered), "")


def _disk(inventory: NodeInventory) -> PreflightFinding:
    least = min(DISK_FREE_MB, inventory.disk_mb * DISK_FREE_SHARE)
    is_fine = inventory.disk_free_mb >= least
    words = f"{inventory.disk_free_mb} of {inventory.disk_mb} MB are free"
    fix = "" if is_fine else "podman image prune --all (or docker), or a larger disk"
    return PreflightFinding("disk", is_fine, words, fix)


def _clock(connection: ConnectionFacts) -> Iterator[PreflightFinding]:
    if connection.skew_s is None:
        return
    is_fine = abs(connection.skew_s) <= SKEW_S
    side = "ahead of" if connection.skew_s > 0 else "behind"
    words = f"its clock is {abs(connection.skew_s):.1f} s {side} ours"
    # Nothing depends on it but the times that people read.
    fix = "" if is_fine else "apt-get install systemd-timesyncd; timedatectl set-ntp true"
    yield PreflightFinding("clock", is_fine, words, fix)


def _crashes(inventory: NodeInventory) -> Iterator[PreflightFinding]:
    if inventory.crashes:
        last = inventory.crashes.strip().splitlines()[-1]
        yield PreflightFinding(
            "helper", is_fine=False, words=f"it left a trace: {last}", fix="report it"
        )
