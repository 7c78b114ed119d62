"""Containers of podman and docker."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any, NamedTuple

from apps.execution.node import arguments, clocks, environment, files, private_files, processes
from apps.execution.node.image_lookup import pinned
from apps.execution.node.prune import note_image
from apps.execution.node.runtimes import (
    STREAM_MARK,
    CallFiles,
    RuntimeUnavailable,
    TaskRuntime,
    run_tool,
    terminal_taker,
    tool_environment,
)
from apps.execution.node.specs import Spec
from apps.execution.node.state_files import MemberFolder, first_process

# After its process has ended, a container is still called running until its monitor has written.
EXIT_CODE_WAIT_S = 30.0
# A client that hangs keeps the lock of its container: then the signal has another way, or none.
SIGNAL_TIMEOUT_S = 20.0
GONE_WORDS = (b"no such container", b"no such object", b"no such secret")


class ContainerState(NamedTuple):
    """What the runtime says of a container; `pid` is 0 when it does not run."""

    status: str
    exit_code: int
    pid: int
    has_started: bool


class Podman(TaskRuntime):
    """Containers of podman 4.1 and later, with or without root."""

    tool = "podman"
    # Any keys would be taken out of what the user types.
    detach_keys = ""

    def start(self, spec: Spec, log: int) -> subprocess.Popen[bytes]:
        """Hand variables over in files, never in arguments, then `podman run`."""
        spec = self._pinned(spec)
        private_files.make(self.member, spec, self.config, secrets=False, is_open=False)
        _write_variables(self.member, spec)
        for number, (_, value) in enumerate(sorted(spec.secrets.items())):
            secret = arguments.secret_id(self.name, number)
            self._tool(["podman", "secret", "create", secret, "-"], value.encode())
        return _popen(arguments.podman_run(spec, self._paths()), _to_log(log), self.config)

    def started_pid(self) -> int | None:
        """What the container monitor wrote into the pid file."""
        return _number_in(self.member.path("pid"))

    def living_pid(self) -> int | None:
        """The container's process; looked up in the pid file first, which needs no podman.

        podman killed half-way can leave a container that `podman ps` does not list, but its
        monitor, started before it, has written the pid file.
        """
        is_doubtful = self.member.has("started.json") and not first_process(self.member)[0]
        if is_doubtful or _number_in(self.member.path("pid")) is None:
            return self._inspected_pid()
        return self._written_pid()

    def is_being_made(self) -> bool:
        """Whether `run` is at work and has not come to the start."""
        if self.member.has("started.json"):
            return False
        return self.started_pid() is None and bool(processes.clients(self.tool, self.name))

    def is_half_made(self) -> bool:
        """Whether `run` ended between the creation of the container and its start."""
        state = self._inspect()
        is_made = state is not None and not state.has_started
        return is_made and not processes.clients(self.tool, self.name)

    def _inspected_pid(self) -> int | None:
        state = self._inspect()
        return (state.pid or None) if state is not None else None

    def _written_pid(self) -> int | None:
        """The living process of the pid file."""
        pid = _number_in(self.member.path("pid"))
        if pid is None:
            return None
        return pid if self._is_first(pid) else None

    def _is_first(self, pid: int) -> bool:
        """Whether it lives, and is the process that was noted at the start, if one was."""
        ticks = processes.start_ticks(pid)
        want = first_process(self.member)[1] if self.member.has("started.json") else ticks
        return ticks is not None and want == ticks

    def send(self, number: signal.Signals) -> bool:
        """Ask podman; SIGKILL goes to the process directly, for podman may not know it."""
        if number == signal.SIGKILL and self.signal_directly(number):
            return True
        return self._signal(number)

    def signal_directly(self, number: signal.Signals) -> bool:
        """Signal the first process of the container, with whose end all others there end."""
        pid = self._written_pid()
        return pid is not None and processes.send(pid, number, self._is_first)

    def kill(self) -> None:
        """SIGKILL; a client that has not made the container yet ends before it does."""
        if not self.member.has("started.json"):
            for pid in processes.clients(self.tool, self.name):
                processes.kill_group(
                    pid, lambda pid: processes.is_client(pid, self.tool, self.name)
                )
        if not self.signal_directly(signal.SIGKILL) and not self.is_known_dead():
            self.send(signal.SIGKILL)

    def call(
        self, command: tuple[str, ...], pipes: CallFiles, *, mark: str = ""
    ) -> subprocess.Popen[bytes]:
        """A second process in the container."""
        words = [self.tool, "exec", "--interactive"]
        if os.isatty(pipes.stdin):
            words += ["--tty", "--detach-keys=%s" % self.detach_keys]
        if mark:
            words.append("--env=%s=%s" % (STREAM_MARK, mark))
        return _popen([*words, "--", self.name, *command], pipes, self.config)

    def called(self, mark: str) -> set[int]:
        """Those of the container's own namespace: what other processes say of marks is ignored."""
        first, _ = first_process(self.member)
        return processes.marked_inside(mark, first=first, mark=STREAM_MARK)

    def exit_code(self) -> int | None:
        """The runtime keeps the code until the container is removed, but knows it a little late."""
        until = clocks.uptime_s() + EXIT_CODE_WAIT_S
        while True:
            state = self._inspect()
            if state is None or not state.has_started:
                return None
            if state.status in ("exited", "stopped", "dead"):
                return state.exit_code
            if clocks.uptime_s() > until:
                return None
            time.sleep(0.1)

    def clean(self) -> bool:
        """Remove the container and its secrets."""
        is_clean = self._removed()
        spec = self.member.read("spec.json") or {}
        for number, name in enumerate(spec.get("secrets", [])):
            # Helpers before this one named them by their own names, where those were short.
            for secret in (arguments.secret_id(self.name, number), "%s-%s" % (self.name, name)):
                done = self._tool(["podman", "secret", "rm", "--", secret])
                is_clean = _is_gone(done) and is_clean
        return is_clean

    def _removed(self) -> bool:
        return _is_gone(self._tool([self.tool, "rm", "--force", "--volumes", "--", self.name]))

    def _inspect(self) -> ContainerState | None:
        """The container by the runtime's word; None when there is none."""
        fields = "{{.State.Status}} {{.State.ExitCode}} {{.State.Pid}} {{.State.StartedAt}}"
        done = self._tool(
            [self.tool, "container", "inspect", "--format=%s" % fields, "--", self.name]
        )
        if done.returncode != 0:
            if _is_gone(done):
                return None
            raise RuntimeUnavailable(done.stderr.decode(errors="replace").strip())
        words = done.stdout.decode(errors="replace")
        try:
            status, code, pid, started_at = words.split(None, 3)
            return ContainerState(status, int(code), int(pid), not started_at.startswith("0001-"))
        except ValueError:
            raise RuntimeUnavailable(
                "%s said of %s: %.200r" % (self.tool, self.name, words)
            ) from None

    def _signal(self, number: signal.Signals) -> bool:
        command = [self.tool, "kill", "--signal=%d" % number, "--", self.name]
        return run_tool(command, self.config, timeout_s=SIGNAL_TIMEOUT_S).returncode == 0

    def _pinned(self, spec: Spec) -> Spec:
        """With the ID of its image, which counts as used now that it is known to be there."""
        spec = pinned(spec, self.config)
        for name in {spec.image, spec.reference}:
            note_image(self.member.home, spec.runtime, name)
        return spec

    def _paths(self) -> arguments.ContainerPaths:
        installation = self.config["installation"]
        private = private_files.folder_of(self.member, self.config)
        return arguments.ContainerPaths(
            self.name, installation, self.member.home, self.member.folder, private
        )

    def _tool(self, command: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return run_tool(command, self.config, stdin)


class Docker(Podman):
    """Containers of docker 25 and later, which gives devices by CDI as podman does."""

    tool = "docker"
    # Empty means the usual ones to it; nobody types these.
    detach_keys = "ctrl-@,ctrl-^,ctrl-@,ctrl-^,ctrl-@"

    def start(self, spec: Spec, log: int) -> subprocess.Popen[bytes]:
        """`docker run`; its secrets are files in memory."""
        spec = self._pinned(spec)
        private_files.make(self.member, spec, self.config, secrets=True, is_open=False)
        _write_variables(self.member, spec)
        return _popen(arguments.docker_run(spec, self._paths()), _to_log(log), self.config)

    def started_pid(self) -> int | None:
        """Ask docker, which has no pid file; only once it has created the container."""
        try:
            return self.living_pid() if self.member.has("cid") else None
        except RuntimeUnavailable:
            return None

    def living_pid(self) -> int | None:
        """The container's process by docker's word."""
        return self._inspected_pid()

    def send(self, number: signal.Signals) -> bool:
        """Ask docker."""
        return self._signal(number)

    def signal_directly(self, _number: signal.Signals) -> bool:
        """Only docker itself reaches what it runs."""
        return False

    def clean(self) -> bool:
        """Remove the container."""
        return self._removed()


def _popen(command: list[str], pipes: CallFiles, config: dict[str, Any]) -> subprocess.Popen[bytes]:
    # In bytes: the node's locale has no say in what the task gets.
    return subprocess.Popen(
        [argument.encode() for argument in command],
        stdin=pipes.stdin,
        stdout=pipes.stdout,
        stderr=pipes.stderr,
        cwd="/",
        env=tool_environment(config),
        start_new_session=True,
        preexec_fn=terminal_taker(pipes.stdin),  # noqa: PLW1509  # the helper has no threads
    )


def _to_log(log: int) -> CallFiles:
    return CallFiles(subprocess.DEVNULL, log, log)


def _write_variables(member: MemberFolder, spec: Spec) -> None:
    variables = environment.container_environment(spec)
    lines = ["%s=%s\n" % item for item in sorted(variables.items())]
    files.write_bytes(member.path("env"), "".join(lines).encode(), durable=False)


def _is_gone(done: subprocess.CompletedProcess[bytes]) -> bool:
    """Whether a removal or a look was answered by a runtime that knows nothing (any more)."""
    words = done.stderr.lower()
    return done.returncode == 0 or any(one in words for one in GONE_WORDS)


def _number_in(path: str) -> int | None:
    try:
        with open(path, "rb") as source:
            return _whole(source.read())
    except FileNotFoundError:
        return None


def _whole(content: bytes) -> int | None:
    digits = content.strip()
    return int(digits) if digits.isdigit() else None
