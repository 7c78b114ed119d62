"""What the helper reads of processes, whose arguments and variables are their own word."""

import operator
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from apps.execution.node import clocks, processes
from apps.execution.node.runtimes import ProcessRuntime
from apps.execution.node.specs import MemberIdentity
from apps.execution.node.state_files import MemberFolder, container_name
from tests.execution.nodes import INSTALLATION, installed_local, member_of
from tests.services.ports import wait_until
from tests.services.sshd import kill_helpers

MINE = os.geteuid()
NOBODY = 65_534
# Of this process of tests alone: the helper finds processes of the whole machine by it.
NAME = f"rpm-{INSTALLATION}-t1-1-0"
as_root = pytest.mark.skipif(MINE != 0, reason="only root starts processes of others")
# PR_SET_MM_MAP, which needs no right: 64 MiB of zeros that cost the process nothing.
LIAR = r"""
import ctypes, time
size = 64 << 20
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
at = libc.mmap(None, ctypes.c_size_t(size), 1, 0x4022, -1, 0)
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
now = [int(fields[number - 3]) for number in (26, 27, 45, 46, 47)] + [libc.sbrk(0), int(fields[25])]
places = (ctypes.c_uint64 * 13)(*now, at, at + size, at, at + size, 0, 0xFFFFFFFF << 32)
print(libc.prctl(35, 14, places, ctypes.c_ulong(104), 0), flush=True)
time.sleep(60)
"""


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, str]]:
    """Which files of which processes were read."""
    seen = set()
    real = processes._read

    def reading(pid: int, name: str, most: int) -> bytes:
        seen.add((pid, name))
        return real(pid, name, most)

    monkeypatch.setattr(processes, "_read", reading)
    return seen


@contextmanager
def running(
    *command: str,
    executable: str | None = None,
    uid: int | None = None,
    cwd: Path | None = None,
    is_leader: bool = False,
    **variables: str,
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command,
        executable=executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=uid,
        cwd=cwd,
        start_new_session=is_leader,
        env={"PATH": os.environ["PATH"], **variables},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def making(*arguments: str, folder: Path, uid: int | None = None) -> Iterator[int]:
    """A process with the arguments of a client of podman: a shell that waits for its input."""
    (folder / "run").write_text("read -r _")
    folder.chmod(0o755)
    command = ("podman", "run", *arguments)
    with running(*command, executable="/bin/sh", cwd=folder, uid=uid) as process:
        wait_until(lambda: has_begun(process.pid, b"podman"), what="the program is there")
        yield process.pid


@contextmanager
def lying() -> Iterator[int]:
    with running(sys.executable, "-c", LIAR) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "0\n":
            pytest.skip("this kernel does not let a process move its arguments")
        yield process.pid


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda _: processes.clients("podman", NAME), id="clients"),
        pytest.param(lambda _: processes.marked(NAME, owner=MINE), id="of a member"),
        pytest.param(lambda _: processes.marked(NAME, owner=None), id="of anybody"),
        pytest.param(lambda pid: processes.environment_of(pid, owner=MINE), id="variables"),
    ],
)
def test_a_process_that_says_that_it_has_long_arguments_costs_the_helper_little(
    look: Callable[[int], object],
) -> None:
    with lying() as pid:
        tracemalloc.start()
        found = look(pid)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert not found
    assert peak < 16 * 1024 * 1024


def test_variables_that_are_many_are_none() -> None:
    many = " ".join(f"{number}=" for number in range(processes.MOST_VARIABLES + 1))

    with running("sh", "-c", f"exec env -i {many} sleep 60") as process:
        wait_until(lambda: has_begun(process.pid, b"sleep"), what="the program is there")
        found = processes.environment_of(process.pid, owner=MINE)

    assert found == {}


def test_a_client_is_found_however_long_its_command_is(tmp_path: Path) -> None:
    words = (f"--name={NAME}", "image", *["x" * 100_000] * 9)

    with making(*words, folder=tmp_path) as pid:
        assert processes.clients("podman", NAME) == {pid}
        assert processes.clients("docker", NAME) == set()


@as_root
def test_what_another_user_calls_a_client_is_none_and_is_not_read(
    tmp_path: Path, read: set[tuple[int, str]]
) -> None:
    with making(f"--name={NAME}", folder=tmp_path, uid=NOBODY) as pid:
        found = processes.clients("podman", NAME)

    assert found == set()
    assert (pid, "status") in read
    assert (pid, "cmdline") not in read


@as_root
def test_only_a_process_of_the_members_user_can_carry_its_mark(read: set[tuple[int, str]]) -> None:
    with (
        running("sleep", "60", uid=NOBODY, RPM_MEMBER=NAME) as own,
        running("sleep", "60", uid=4711, RPM_MEMBER=NAME) as forged,
    ):
        for pid in (own.pid, forged.pid):
            wait_until(partial(has_begun, pid, b"sleep"), what="the program is there")
        found = processes.marked(NAME, owner=NOBODY)

    assert found == {own.pid}
    assert (forged.pid, "status") in read
    assert (forged.pid, "environ") not in read


@as_root
def test_a_forged_mark_neither_keeps_a_member_from_ending_nor_ends_with_it(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    node = installed_local(home)
    request = node.launch_request("true", uid=NOBODY, gid=NOBODY)
    name = container_name(INSTALLATION, MemberIdentity(request.task_id, 1, 0))
    try:
        with running("sleep", "60", uid=4711, RPM_MEMBER=name) as forged:
            node.client.launch(request)
            ended = node.wait_for_exit(member_of(request))
            is_living = processes.start_ticks(forged.pid) is not None
    finally:
        kill_helpers(home)

    assert ended.exit_code == 0
    assert is_living


def test_a_session_is_not_a_members_once_its_number_is_another_process(tmp_path: Path) -> None:
    attempt = MemberFolder(str(tmp_path), MemberIdentity("t1", 1, 0))
    Path(attempt.folder).mkdir(parents=True)
    attempt.write("spec.json", {"user": ""})
    with running("sleep", "60", is_leader=True) as other:
        attempt.write("started.json", {"pid": other.pid, "pid_start": 1})
        is_sent = ProcessRuntime(attempt, {"installation": INSTALLATION}).send(signal.SIGKILL)
        is_living = processes.start_ticks(other.pid) is not None

    assert not is_sent
    assert is_living


FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print(1, flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_lives_as_long_as_one_of_its_threads() -> None:
    marked = os.environ | {processes.MARK: NAME}
    command = [sys.executable, "-c", FIRST_THREAD_ENDS]
    with subprocess.Popen(
        command, env=marked, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            state = Path(f"/proc/{process.pid}/stat")
            wait_until(lambda: ") Z " in state.read_text(), what="the end of the first thread")
            is_alive = processes.start_ticks(process.pid) is not None
            in_session = processes.in_session(process.pid)
            is_marked = processes.is_marked(process.pid, NAME, owner=MINE)
        finally:
            process.kill()
        process.wait()

    assert (is_alive, in_session, is_marked) == (True, {process.pid}, True)
    assert processes.start_ticks(process.pid) is None


def has_begun(pid: int, word: bytes) -> bool:
    with open(f"/proc/{pid}/cmdline", "rb") as source:
        return source.read(1000).split(b"\0")[0] == word


def test_a_signal_to_nobody_says_so() -> None:
    with running("true") as process:
        process.wait()

    assert not processes.send(process.pid, signal.SIGTERM, lambda _: True)


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_a_signal_reaches_only_the_process_that_is_meant(
    monkeypatch: pytest.MonkeyPatch, has_pidfd: bool
) -> None:
    if not has_pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    with running("sleep", "60") as process:
        outcomes = [
            processes.send(process.pid, signal.SIGKILL, partial(operator.eq, meant))
            for meant in (0, process.pid)
        ]
        code = process.wait()

    assert (outcomes, code) == ([False, True], -signal.SIGKILL)


@pytest.mark.parametrize(
    ("mark", "boot", "is_ended"),
    [
        pytest.param("", None, False, id="of no process that we know"),
        pytest.param(NAME, None, True, id="of one that carries our mark"),
        pytest.param("", "before", False, id="of another boot"),
    ],
)
def test_a_session_whose_first_process_is_gone_ends_only_where_it_is_ours(
    tmp_path: Path, mark: str, boot: str | None, is_ended: bool
) -> None:
    attempt = MemberFolder(str(tmp_path), MemberIdentity("t1", 1, 0))
    Path(attempt.folder).mkdir(parents=True)
    attempt.write("spec.json", {"user": ""})
    script = "env -i sleep 60 & echo $!; [ -z $RPM_MEMBER ] || sleep 60 & exit"
    with running("sh", "-c", script, is_leader=True, RPM_MEMBER=mark) as leader:
        assert leader.stdout is not None
        left = int(leader.stdout.readline())
        ticks = processes.birth_ticks(leader.pid)
        leader.wait()
        started = {"pid": leader.pid, "pid_start": ticks, "boot_id": boot or clocks.boot_id()}
        attempt.write("started.json", started)
        try:
            is_sent = ProcessRuntime(attempt, {"installation": INSTALLATION}).send(signal.SIGKILL)
            if is_ended:
                wait_until(lambda: processes.start_ticks(left) is None, what="its end")
            is_living = processes.start_ticks(left) is not None
        finally:
            for pid in processes.in_session(leader.pid):
                os.kill(pid, signal.SIGKILL)

    assert (is_sent, is_living) == (is_ended, not is_ended)
