"""What the helper does, often as root, where a task may have put anything."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apps.execution.bundle import NODE_FILES
from apps.execution.node import private_files, processes, task_files
from apps.execution.node.specs import Spec
from apps.execution.node.state_files import MemberFolder
from apps.execution.protocol.outcomes import StartFailed
from tests.execution.node.path_walk import MODULE, paths_used
from tests.execution.node.test_arguments import spec as plain_spec
from tests.execution.nodes import INSTALLATION, installed_local, member_of
from tests.services.ports import wait_until
from tests.services.sshd import kill_helpers

CONFIG = {"installation": INSTALLATION}
NOBODY = 65_534
LONG = private_files.CHECKPOINT_BYTES + 1
ALL = None
# Who may use a path, or start a program that does, and the functions that do. A task writes to none
# of these places: the helper's own home is closed, the rest is the kernel's or the administrator's.
ALLOWED: dict[str, set[str] | None] = {
    "__main__": {"<module>"},
    # The node's own list, and whether a path is on it: nothing is opened that it names.
    "allowlist": {"_entry", "_is_disk", "_is_given", "_resolved", "read"},
    "callbacks": {"keep", "run"},
    "channel": {"_run_child"},
    "cleanup": {"clean_up", "ensure_clean"},
    "clocks": {"boot_id"},
    # The runtimes' clients.
    "containers": {"_number_in", "_popen", "_write_variables"},
    "crash_points": ALL,
    "detached_process": ALL,
    "devices": ALL,
    "files": ALL,
    # What podman mounts of an image, relative to its open root; nothing changes there.
    "image_root": {"__init__", "_check_folder", "_enter", "_follow", "_leave", "_mounted"},
    "installer": ALL,
    "leases": {"_write", "grant", "lengthen"},
    "members": {"forget", "launch", "stop"},
    # Its own folders, and /proc.
    "mps": {"_end", "_name_of", "_start", "daemons", "prepare", "update_daemons"},
    # Connections, no files.
    "port_relay": {MODULE},
    # A folder of the home that nothing of the container of a preflight reaches; an archive in
    # memory; and the node's own shell.
    "preflight": {MODULE, "_try_container", "_try_process", "_try_start"},
    # Which file systems there are; and the time of an open file.
    "private_files": {"_base", "_in_memory", "_touched_at"},
    "probe": ALL,
    # The kernel's files. What a task says in them is read with a bound.
    "processes": {
        "_all", "_mounts", "_open_files", "_pid_namespace", "_read", "_status", "_variables",
    },
    "prune": {
        "_is_known", "_older_than", "_remove_leftovers", "_remove_pull", "_unused_images",
        "ensure_pruned", "note_image",
    },
    "pull": {
        "_await_result", "_ensure_puller", "_fetch", "_progress", "_result", "_started", "pull",
    },
    "registry_login": {"remove_leftovers"},
    # To where the task's user may go, with that user's rights; and its programs.
    "runtimes": {"_inside", "call", "run_tool", "start"},
    "serials": {"_write", "record"},
    "service": {"answer_to", "hello"},
    "state_files": {
        "_entries", "add", "decided", "has", "is_of_this_boot", "is_supervised", "is_torn", "mark",
        "notify",
        "raise_fence", "read", "read_fence", "remove", "remove_mark", "restore_marks",
        "supervisor_of", "task_lock", "waiter_path",
        "write", "write_once",
    },
    "stopper": {"_end_callback", "ensure_stopper"},
    # The kernel's namespaces of the task's process.
    "task_network": {MODULE, "enter", "_enter"},
    "supervisor": {
        "_last_words", "adopt", "launch", "log_takes_too_much", "shorten_log", "supervise",
    },
    "sync": {"_log_end", "_read_log", "waiter"},
    "task_files": ALL,
    "unlisted_members": {"_read", "_running", "unlisted_members"},
    "watchdog": {"ensure_watchdog"},
}  # fmt: skip


def test_files_of_tasks_are_used_in_one_module_only() -> None:
    """A name is added only if no task can write to that place."""
    found = [
        f"{path.stem}.{function}: {call}"
        for path in sorted(NODE_FILES.glob("*.py"))
        for function, call in paths_used(path.read_text())
        if ALLOWED.get(path.stem, set()) is not ALL
        and function not in (ALLOWED.get(path.stem) or set())
    ]

    assert found == []


def test_no_function_is_allowed_paths_that_uses_none() -> None:
    found = {
        path.stem: {function for function, _ in paths_used(path.read_text())}
        for path in NODE_FILES.glob("*.py")
    }

    assert {
        name: functions - found[name]
        for name, functions in ALLOWED.items()
        if functions is not ALL and functions - found[name]
    } == {}


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("def f(p): open(p)", "open"),
        ("def f(p): os.truncate(p, 0)", "os.truncate"),
        ("def f(p): os.open(p, os.O_RDONLY)", "os.open"),
        ("def f(p): os.path.exists(p)", "os.path.exists"),
        ("def f(p): shutil.rmtree(p)", "shutil.rmtree"),
        ("def f(p): map(os.stat, p)", "os.stat"),
        ("def f(p): os.stat(p).st_size", "os.stat"),
        ("async def f(p): os.truncate(p, 0)", "os.truncate"),
        ("class f: x = os.listdir('/x')", "os.listdir"),
        ("class C:\n  def f(self, p): os.unlink(p)", "os.unlink"),
        ("def f(p):\n  def g(): os.unlink(p)", "os.unlink"),
        ("def f(p): getattr(os, 'truncate')(p, 0)", "os"),
        ("def f(p): contextlib.os.unlink(p)", "contextlib.os"),
        ("def f(p): sys.modules['os'].unlink(p)", "sys.modules"),
        ("def f(p): __import__('os').unlink(p)", "__import__"),
        ("def f(p): exec(p)", "exec"),
        ("def f(p):\n  import pathlib", "import pathlib"),
        ("def f(p): subprocess.run(['rm', '-rf', p])", "subprocess.run"),
        ("def f(p): files.write_bytes(p, b'', durable=False)", "files.write_bytes"),
        ("def f(p): files.read_json(p)", "files.read_json"),
        ("def f(p): files.os.unlink(p)", "files.os.unlink"),
    ],
)
def test_the_walk_sees_a_path_in_a_function(code: str, want: str) -> None:
    assert ("f", want) in list(paths_used(code))


@pytest.mark.parametrize(
    "code",
    [
        "import glob",
        "import importlib",
        "import io",
        "import os as o",
        "import os.path",
        "import pathlib",
        "import shutil as s",
        "import socket",
        "import subprocess as s",
        "import tarfile",
        "import tempfile",
        "from os import path",
        "from os import truncate",
        "from pathlib import Path",
        "from shutil import rmtree",
        "from subprocess import run",
        "from apps.execution.node import files as f",
        "from apps.execution.node.files import write_bytes",
        "from apps.execution.node.state_files import os as o",
        "os.truncate('/x', 0)",
        "g = lambda p: os.truncate(p, 0)",
        "if True: os.unlink('/x')",
    ],
)
def test_the_walk_sees_a_path_in_a_module(code: str) -> None:
    assert [scope for scope, _ in paths_used(code)] == [MODULE]


@pytest.mark.parametrize(
    "code",
    [
        "import os\nimport subprocess\nfrom functools import partial",
        "from apps.execution.node import files\nfrom apps.execution.node.state_files import add",
        "def f(): os.close(os.path.join(1, os.O_RDONLY, os.environ['HOME'], files.RESERVED))",
        "def f(fd): os.fchmod(fd, 0)",
        "def f(one: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]: one.wait()",
        "def f(fd): os.fstat(fd).st_size",
    ],
)
def test_the_walk_lets_pass_what_uses_no_path(code: str) -> None:
    assert list(paths_used(code)) == []


@pytest.fixture
def spec() -> Spec:
    """Of a process: of nobody where the tests run as root."""
    ids = {"uid": NOBODY, "gid": NOBODY} if os.geteuid() == 0 else {"uid": None, "gid": None}
    return plain_spec(**ids, runtime="process", secrets={"KEY": "x"})


@pytest.fixture
def attempt(tmp_path: Path, spec: Spec) -> Iterator[MemberFolder]:
    attempt = MemberFolder(str(tmp_path / "home"), spec.identity)
    Path(attempt.folder).mkdir(parents=True)
    attempt.write("spec.json", {"user": spec.user})
    private_files.make(attempt, spec, CONFIG, secrets=True, is_open=True)
    yield attempt
    assert private_files.remove(attempt, CONFIG)


@pytest.fixture
def file(attempt: MemberFolder) -> Path:
    return Path(private_files.folder_of(attempt, CONFIG)) / "checkpoint"


@pytest.fixture
def victim(tmp_path: Path, file: Path) -> Iterator[Path]:
    """Another user's, longer than a checkpoint file may be, and where it can be linked to."""
    victim = file.parent.parent / f"{tmp_path.name}-victim"
    victim.write_bytes(b"x" * LONG)
    yield victim
    victim.unlink()


def saved(attempt: MemberFolder) -> float | None:
    return private_files.checkpointed_wall_s(attempt, CONFIG)


HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "a symbolic link": lambda file, victim: file.symlink_to(victim),
    "a second name of another file": lambda file, victim: file.hardlink_to(victim),
    "a pipe": lambda file, _: os.mkfifo(file),
    "a folder": lambda file, _: file.mkdir(),
    "a link to a device": lambda file, _: file.symlink_to("/dev/zero"),
    "a link to itself": lambda file, _: file.symlink_to(file),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_stands_in_the_place_of_a_checkpoint_file_is_not_touched(
    kind: str, attempt: MemberFolder, file: Path, victim: Path
) -> None:
    file.unlink()
    HOSTILE[kind](file, victim)

    assert saved(attempt) is None

    assert victim.stat().st_size == LONG


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_link_to_another_folder_in_place_of_the_tasks_own_is_not_followed(
    attempt: MemberFolder, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").write_bytes(b"x" * LONG)
    os.chown(tmp_path / "checkpoint", NOBODY, NOBODY)
    private_files.remove(attempt, CONFIG)
    file.parent.symlink_to(tmp_path)
    os.chown(file.parent, NOBODY, NOBODY, follow_symlinks=False)

    assert saved(attempt) is None

    assert (tmp_path / "checkpoint").stat().st_size == LONG


def test_a_checkpoint_dated_ahead_is_of_now_and_stays_so(attempt: MemberFolder, file: Path) -> None:
    before = file.stat().st_ctime
    os.utime(file, (99_999_999_999, 99_999_999_999))

    first, second = saved(attempt), saved(attempt)

    assert first == second
    assert first is not None
    assert before <= first < 99_999_999_999


def test_a_checkpoint_dated_before_all_time_says_nothing(attempt: MemberFolder, file: Path) -> None:
    os.utime(file, (-5, -5))

    assert saved(attempt) is None


def test_a_folder_is_removed_however_deep_it_is_and_nothing_next_to_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(tmp_path / "kept")
    os.mkfifo(top / "pipe")
    (top / "wide").mkdir()
    (top / "wide" / "link").symlink_to("/")
    folder = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=folder)
        deeper = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)

    task_files.remove(str(top))

    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_link_of_somebody_else_on_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with task_files.opened_folder(str(tmp_path / "link")) as folder:
        assert os.fstat(folder).st_ino == (tmp_path / "real").stat().st_ino
    os.chown(tmp_path / "link", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(PermissionError), task_files.opened_folder(str(tmp_path / "link")):
        pass


def test_a_file_that_is_read_is_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to(tmp_path / "log")
    mine = os.geteuid()

    assert task_files.read_end(str(tmp_path / "log"), owner=mine, most=4) == b"6789"

    for name, owner in (("link", mine), ("log", mine + 1)):
        with pytest.raises(OSError, match=name):
            task_files.read_end(str(tmp_path / name), owner=owner, most=4)


def test_a_process_of_another_user_gives_a_callback_no_variables() -> None:
    with subprocess.Popen(["sleep", "60"], env={"LD_PRELOAD": "/tmp/x"}) as process:
        wait_until(
            lambda: processes.environment_of(process.pid, owner=os.geteuid()) != {},
            what="the program is there",
        )
        theirs = processes.environment_of(process.pid, owner=os.geteuid() + 1)
        process.kill()

    assert theirs == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="the helper has no other rights than its tasks")
def test_a_process_begins_in_no_folder_that_its_user_cannot_reach(tmp_path: Path) -> None:
    home = str(tmp_path / "node")
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed" / "open").mkdir()
    (tmp_path / "closed" / "open").chmod(0o777)
    node = installed_local(home)
    try:
        outcome = node.launch(
            "true", working_dir=str(tmp_path / "closed" / "open"), uid=NOBODY, gid=NOBODY
        )
    finally:
        kill_helpers(home)

    assert isinstance(outcome, StartFailed)
    assert "Permission denied" in outcome.detail


@pytest.mark.skipif(os.geteuid() != 0, reason="the helper has no other rights than its tasks")
def test_a_task_cannot_have_the_helper_shorten_a_file_of_root(tmp_path: Path) -> None:
    home = str(tmp_path / "node")
    victim = tmp_path / "victim"
    victim.write_bytes(b"x" * LONG)
    node = installed_local(home)
    command = (
        f'rm "$RPM_CHECKPOINT_FILE"; ln -s {victim} "$RPM_CHECKPOINT_FILE"; echo done; sleep 60'
    )
    request = node.launch_request("sh", "-c", command, uid=NOBODY, gid=NOBODY)
    try:
        node.client.launch(request)
        node.wait_for_log(member_of(request), b"done")
        node.sync()
        node.stop(member_of(request), grace_s=0)
        ended = node.wait_for_exit(member_of(request))
    finally:
        kill_helpers(home)

    assert ended.checkpointed_wall_s is None
    assert victim.stat().st_size == LONG
