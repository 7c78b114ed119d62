"""podman, docker and plain processes behind one interface, used by supervisor and stopper."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

from apps.execution.node import arguments, clocks, environment, files, processes
from apps.execution.node.errors import Refusal
from apps.execution.node.homes import Attempt, container_name
from apps.execution.node.specs import Spec

TOOL_TIMEOUT_S = 120
# After its process has ended, a container is still called running until its monitor has written.
EXIT_CODE_WAIT_S = 10


class Runtime:
    """How one attempt is started, found, signalled and cleaned up."""

    # What `start` answers is the runtime's client; the task can outlive it.
    has_client = True

    def __init__(self, attempt: Attempt, config: dict[str, Any]) -> None:
        self.attempt = attempt
        self.config = config
        self.name = container_name(config["installation"], attempt.identity)

    def start(self, spec: Spec, log: int) -> subprocess.Popen[bytes]:
        """Start it; the process returned ends when the task ends, with its exit code.

        Raises:
            OSError: nothing was started.
        """
        raise NotImplementedError

    def started_pid(self) -> int | None:
        """The task's own process once it runs; None while the runtime prepares it."""
        raise NotImplementedError

    def living_pid(self) -> int | None:
        """The task's process, whoever started it; None when there is none."""
        raise NotImplementedError

    def send(self, number: signal.Signals) -> bool:
        """Signal the task. False when it cannot be reached (yet)."""
        raise NotImplementedError

    def exit_code(self) -> int | None:
        """The code of a task that ended unwatched; None when nobody kept it."""
        return None

    def sweep(self) -> None:
        """End what the task left behind, before its end is written down."""

    def clean(self) -> None:
        """Remove what the runtime keeps of an ended task; harmless when there is nothing."""


class Process(Runtime):
    """No isolation at all: for trying out, where an administrator allows it."""

    has_client = False
    _pid: int | None = None

    def start(self, spec: Spec, log: int) -> subprocess.Popen[bytes]:
        """Start the command in a session of its own, which tells its descendants from others."""
        uid, gid = _ids(spec.user)
        process = subprocess.Popen(
            list(spec.command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=spec.workdir or "/",
            env={**environment.process_environment(spec), processes.MARK: self.name},
            start_new_session=True,
            user=uid,
            group=gid,
            extra_groups=None if uid is None else [],
        )
        self._pid = process.pid
        return process

    def started_pid(self) -> int | None:
        """At once: `Popen` returns after the program was loaded."""
        return self._pid

    def living_pid(self) -> int | None:
        """The recorded process if it is still that one, else any that carries our mark."""
        started = self.attempt.read("started.json") or {}
        pid = int(started.get("pid", 0))
        if pid and processes.start_ticks(pid) == started.get("pid_start"):
            return pid
        return min(processes.marked(self.name), default=None)

    def send(self, number: signal.Signals) -> bool:
        """Signal the session's processes; SIGKILL also whoever left it but carries our mark."""
        pids = processes.marked(self.name)
        started = self.attempt.read("started.json") or {}
        pids |= processes.in_session(int(started.get("pid", 0)))
        for pid in pids:
            processes.send(pid, number)
        return bool(pids)

    def sweep(self) -> None:
        """Kill descendants that outlived it; of a container nothing outlives the first process."""
        self.send(signal.SIGKILL)


class Podman(Runtime):
    """Containers of podman 4.1 and later, with or without root."""

    tool = "podman"

    def start(self, spec: Spec, log: int) -> subprocess.Popen[bytes]:
        """Hand variables over in files, never in arguments, then `podman run`."""
        _write_variables(self.attempt, spec)
        for name, value in spec.secrets.items():
            secret = "%s-%s" % (self.name, name)
            self._tool(["podman", "secret", "create", secret, "-"], value.encode())
        return _popen(arguments.podman_run(spec, self._place()), log, self.config)

    def started_pid(self) -> int | None:
        """What the container monitor wrote into the pid file."""
        return _number_in(self.attempt.path("pid"))

    def living_pid(self) -> int | None:
        """The container's process; looked up in the pid file first, which needs no podman.

        podman killed half-way can leave a container that `podman ps` does not list, but its
        monitor, started before it, has written the pid file.
        """
        pid = _number_in(self.attempt.path("pid"))
        if pid is None:
            return self._inspected("{{.State.Pid}}") or None
        started = self.attempt.read("started.json") or {}
        ticks = processes.start_ticks(pid)
        is_same = ticks is not None and started.get("pid_start", ticks) == ticks
        return pid if is_same else None

    def send(self, number: signal.Signals) -> bool:
        """Ask podman; SIGKILL goes to the process directly where podman does not know it."""
        done = self._tool(["podman", "kill", "--signal=%d" % number, "--", self.name])
        if done.returncode == 0:
            return True
        pid = self.living_pid()
        return pid is not None and number == signal.SIGKILL and processes.send(pid, number)

    def exit_code(self) -> int | None:
        """The runtime keeps the code until the container is removed, but knows it a little late."""
        template = "--format={{.State.Status}} {{.State.ExitCode}}"
        until = clocks.uptime_s() + EXIT_CODE_WAIT_S
        while clocks.uptime_s() < until:
            done = self._tool([self.tool, "container", "inspect", template, "--", self.name])
            status, _, code = done.stdout.decode(errors="replace").strip().partition(" ")
            if done.returncode != 0 or status in ("created", "configured"):
                return None
            if status in ("exited", "stopped", "dead"):
                return _whole(code.encode())
            time.sleep(0.1)
        return None

    def clean(self) -> None:
        """Remove the container and its secrets."""
        self._tool(["podman", "rm", "--force", "--volumes", "--", self.name])
        spec = self.attempt.read("spec.json") or {}
        for name in spec.get("secrets", []):
            self._tool(["podman", "secret", "rm", "--", "%s-%s" % (self.name, name)])

    def _inspected(self, template: str) -> int | None:
        """A number about the container; None when there is no container or no number."""
        done = self._tool(
            [self.tool, "container", "inspect", "--format=%s" % template, "--", self.name]
        )
        return _whole(done.stdout) if done.returncode == 0 else None

    def _place(self) -> arguments.Place:
        installation = self.config["installation"]
        return arguments.Place(self.name, installation, self.attempt.home, self.attempt.folder)

    def _tool(self, command: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return run_tool(command, self.config, stdin)


class Docker(Podman):
    """Containers of docker 25 and later, which gives devices by CDI as podman does."""

    tool = "docker"

    def start(self, spec: Spec, log: int) -> subprocess.Popen[bytes]:
        """`docker run`; secrets exist only in a swarm there."""
        if spec.secrets:
            raise Refusal("invalid", "secrets: docker cannot keep them on a single node")
        _write_variables(self.attempt, spec)
        return _popen(arguments.docker_run(spec, self._place()), log, self.config)

    def started_pid(self) -> int | None:
        """Ask docker, which has no pid file; only once it has created the container."""
        return self.living_pid() if self.attempt.has("cid") else None

    def living_pid(self) -> int | None:
        """The container's process by docker's word."""
        return self._inspected("{{.State.Pid}}") or None

    def send(self, number: signal.Signals) -> bool:
        """Ask docker."""
        done = self._tool(["docker", "kill", "--signal=%d" % number, "--", self.name])
        return done.returncode == 0

    def clean(self) -> None:
        """Remove the container."""
        self._tool(["docker", "rm", "--force", "--volumes", "--", self.name])


KINDS: dict[str, type[Runtime]] = {"podman": Podman, "docker": Docker, "process": Process}


def run_tool(
    command: list[str], config: dict[str, Any], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a short command of a runtime; a missing or stuck one reads as exit code 127 or 124."""
    try:
        return subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=tool_environment(config),
            cwd="/",
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, b"", str(error).encode())
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, b"", b"no answer in time")


def tool_environment(config: dict[str, Any]) -> dict[str, str]:
    """The runtimes' own variables: the account's, and those given when the helper was installed."""
    path = os.environ.get("PATH") or environment.PROCESS_PATH
    return {**os.environ, "PATH": path, **config.get("environment", {})}


def _popen(command: list[str], log: int, config: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
        env=tool_environment(config),
        start_new_session=True,
    )


def _write_variables(attempt: Attempt, spec: Spec) -> None:
    variables = environment.container_environment(spec)
    lines = ["%s=%s\n" % item for item in sorted(variables.items())]
    files.write_bytes(attempt.path("env"), "".join(lines).encode(), durable=False)


def _ids(user: str) -> tuple[int | None, int | None]:
    if not user:
        return None, None
    uid, gid = (int(part) for part in user.split(":"))
    if os.geteuid() == 0:
        return uid, gid
    if uid != os.geteuid():
        raise Refusal("invalid", "uid: this node's account can only run processes as itself")
    return None, None


def _number_in(path: str) -> int | None:
    try:
        with open(path, "rb") as source:
            return _whole(source.read())
    except FileNotFoundError:
        return None


def _whole(content: bytes) -> int | None:
    digits = content.strip()
    return int(digits) if digits.isdigit() else None
