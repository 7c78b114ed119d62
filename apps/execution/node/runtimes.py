"""What can run a task, behind one interface; and the runtime without containers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import termios
from typing import Any, Callable, Iterator, NamedTuple

from apps.execution.node import environment, private_files, processes, task_files
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.specs import Spec
from apps.execution.node.state_files import MemberFolder, container_name, first_process

TOOL_TIMEOUT_S = 120
# Stands in the environment of what a stream starts, and so of its descendants.
STREAM_MARK = "RPM_STREAM"


class RuntimeUnavailable(Exception):
    """The runtime gave no answer: nothing is known, and it has to be asked again."""


class CallFiles(NamedTuple):
    """Descriptors of another command; the other end of a terminal is all three of them."""

    stdin: int
    stdout: int
    stderr: int


class TaskRuntime:
    """How one attempt is started, found, signalled and cleaned up."""

    # What `start` answers is the runtime's client; the task can outlive it.
    has_client = True

    def __init__(self, member: MemberFolder, config: dict[str, Any]) -> None:
        self.member = member
        self.config = config
        self.name = container_name(config["installation"], member.identity)

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
        """The task's process, whatever process started it; None when there is none.

        Raises:
            RuntimeUnavailable: that cannot be determined at the moment.
        """
        raise NotImplementedError

    def is_known_dead(self) -> bool:
        """Whether there is certainly no process of the task."""
        try:
            return self.living_pid() is None
        except RuntimeUnavailable:
            return False

    def is_being_made(self) -> bool:
        """Whether a client is still at work whose task has not begun."""
        return False

    def is_half_made(self) -> bool:
        """Whether something is there that will never begin, because its client is gone.

        Raises:
            RuntimeUnavailable: that cannot be determined at the moment.
        """
        return False

    def send(self, number: signal.Signals) -> bool:
        """Signal the task. False when it cannot be reached (yet)."""
        raise NotImplementedError

    def signal_directly(self, number: signal.Signals) -> bool:
        """Signal a running task without its runtime. False where that is not possible."""
        return self.send(number)

    def kill(self) -> None:
        """End the task by the shortest way, even one that is only being made."""
        self.send(signal.SIGKILL)

    def exit_code(self) -> int | None:
        """The code of a task that ended unwatched; None when it never ran or the code is lost.

        Raises:
            RuntimeUnavailable: that cannot be determined at the moment.
        """
        return None

    def call(
        self, command: tuple[str, ...], pipes: CallFiles, *, mark: str = ""
    ) -> subprocess.Popen[bytes]:
        """Run another command where the task runs, as the task's user and with its variables.

        Args:
            mark: what its descendants are found by (`called`).

        Raises:
            OSError: nothing was started.
        """
        raise NotImplementedError

    def called(self, mark: str) -> set[int]:
        """The living processes of a call with this mark, or that descend from it."""
        raise NotImplementedError

    def remove_leftovers(self) -> None:
        """End what the task left behind, before its end is written down."""

    def clean(self) -> bool:
        """Remove what is kept of an ended task outside its folder; False if some may be left."""
        return True


class ProcessRuntime(TaskRuntime):
    """No isolation at all: for trying out, where an administrator allows it."""

    has_client = False
    _pid: int | None = None

    def start(self, spec: Spec, log: int) -> subprocess.Popen[bytes]:
        """Start the command in a session of its own, which tells its descendants from others."""
        uid, gid = _ids(spec.user)
        private = private_files.make(self.member, spec, self.config, secrets=True, is_open=True)
        variables = environment.process_environment(spec, private)
        with _inside(spec.working_dir, spec.user):
            process = subprocess.Popen(
                [argument.encode() for argument in spec.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_in_bytes({**variables, processes.MARK: self.name}),
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
        pid, ticks = first_process(self.member)
        if pid and processes.start_ticks(pid) == ticks:
            return pid
        return min(self._marked(), default=None)

    def send(self, number: signal.Signals) -> bool:
        """Signal the session's processes; SIGKILL also marked processes that have left it."""
        leader, session = self._session()
        for pid in session:
            processes.send(pid, number, lambda pid: processes.is_in_session(pid, leader))
        # Afterwards: what marks say is the task's own word.
        owner = self._owner()
        descendants = processes.marked(self.name, owner=owner) - session
        for pid in descendants:
            processes.send(
                pid, number, lambda pid: processes.is_marked(pid, self.name, owner=owner)
            )
        return bool(session or descendants)

    def _session(self) -> tuple[int, set[int]]:
        """The session that the task began in, and its processes, unless its number is another's.

        No other session gets the number while one process is left of it. So where the first one
        is gone, one that carries our mark says it of all.
        """
        leader, ticks = first_process(self.member)
        found = processes.in_session(leader)
        now = processes.birth_ticks(leader)
        is_same = now == ticks if now is not None else bool(found and found & self._marked())
        return leader, found if is_same else set()

    def _marked(self) -> set[int]:
        return processes.marked(self.name, owner=self._owner())

    def _owner(self) -> int | None:
        """The task's user: no other one can keep it from ending by a forged mark."""
        spec = self.member.read("spec.json")
        if spec is None:
            return None
        ids = private_files.ids_of(spec.get("user", ""))
        return ids[0] if ids else os.geteuid()

    def call(
        self, command: tuple[str, ...], pipes: CallFiles, *, mark: str = ""
    ) -> subprocess.Popen[bytes]:
        """Run it next to the task, with the variables that the task's process began with."""
        spec = self.member.read("spec.json")
        if spec is None:
            # Which rights it may have is unknown.
            raise OSError("spec.json cannot be read")
        uid, gid = _ids(spec.get("user", ""))
        owner = os.geteuid() if uid is None else uid
        variables = processes.environment_of(self.living_pid() or 0, owner=owner)
        if mark:
            variables[STREAM_MARK.encode()] = mark.encode()
        with _inside(spec.get("working_dir", ""), spec.get("user", "")):
            return subprocess.Popen(
                [argument.encode() for argument in command],
                stdin=pipes.stdin,
                stdout=pipes.stdout,
                stderr=pipes.stderr,
                env=variables,
                start_new_session=True,
                preexec_fn=terminal_taker(pipes.stdin),  # noqa: PLW1509  # the helper has no threads
                user=uid,
                group=gid,
                extra_groups=None if uid is None else [],
            )

    def called(self, mark: str) -> set[int]:
        """Of the task's user alone."""
        return processes.marked(mark, owner=self._owner(), mark=STREAM_MARK)

    def remove_leftovers(self) -> None:
        """Kill descendants that outlived it; of a container nothing outlives the first process."""
        self.send(signal.SIGKILL)


def run_tool(
    command: list[str],
    config: dict[str, Any],
    stdin: bytes = b"",
    timeout_s: float = TOOL_TIMEOUT_S,
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
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, b"", str(error).encode())
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, b"", b"no answer in time")


def terminal_taker(descriptor: int) -> Callable[[], None] | None:
    """What a child does first so that the terminal that it gets sends it its signals."""
    return _take_terminal if os.isatty(descriptor) else None


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def tool_environment(config: dict[str, Any]) -> dict[str, str]:
    """The runtimes' own variables: the account's, and those given when the helper was installed."""
    path = os.environ.get("PATH") or environment.PROCESS_PATH
    return {**os.environ, "PATH": path, **config.get("environment", {})}


@contextlib.contextmanager
def _inside(working_dir: str, user: str) -> Iterator[None]:
    """In the task's folder, which it has to reach with its own rights and not with ours."""
    with task_files.as_user(private_files.ids_of(user)):
        os.chdir((working_dir or "/").encode())
    try:
        yield
    finally:
        os.chdir("/")


def _in_bytes(variables: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in variables.items()}


def _ids(user: str) -> tuple[int | None, int | None]:
    if not user:
        return None, None
    uid, gid = (int(part) for part in user.split(":"))
    if os.geteuid() == 0:
        return uid, gid
    if uid != os.geteuid():
        raise RequestRefusal("invalid", "uid: this node's account can only run processes as itself")
    return None, None
