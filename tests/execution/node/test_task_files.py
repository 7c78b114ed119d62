"""What the helper does, often as root, where a task may have put anything."""

import ast
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from apps.execution.bundle import NODE_FILES
from apps.execution.node import privates, processes, task_files
from apps.execution.node.homes import Attempt
from apps.execution.node.specs import Spec, spec_of
from apps.execution.protocol.outcomes import StartFailed
from tests.execution.node.test_arguments import PLAIN
from tests.execution.nodes import INSTALLATION, installed_local, member_of
from tests.services.ports import wait_until
from tests.services.sshd import kill_helpers

CONFIG = {"installation": INSTALLATION}
NOBODY = 65_534
LONG = privates.CHECKPOINT_BYTES + 1
# Use descriptors, processes or mere text; everything else of `os` and `shutil` takes a path.
HARMLESS = {
    "close", "devnull", "dup2", "environ", "_exit", "fchmod", "fchown", "fork", "fstat", "fsync",
    "ftruncate", "getegid", "geteuid", "getgroups", "getpid", "kill", "killpg", "lseek",
    "memfd_create", "pidfd_open", "pipe", "posix_fallocate", "pread", "pwrite", "read",
    "sched_getaffinity", "setegid", "seteuid", "setgroups", "setpriority", "setsid", "strerror",
    "umask", "waitpid", "which", "write",
    "path.abspath", "path.basename", "path.dirname", "path.expanduser", "path.isabs", "path.join",
    "path.split",
}  # fmt: skip
ALL = None
# Who may use a path, and the functions that do. A task writes to none of these places: the
# helper's own home is closed, the rest is the kernel's or the administrator's.
ALLOWED: dict[str, set[str] | None] = {
    # The node's own list, and whether a path is on it: nothing is opened that it names.
    "allowlist": ALL,
    "callbacks": {"run"},
    "cleaning": {"clean_up"},
    "clocks": {"boot_id"},
    "containers": {"_number_in"},
    "crashing": ALL,
    "detaching": ALL,
    "devices": ALL,
    "files": ALL,
    "homes": ALL,
    "installer": ALL,
    "members": {"forget"},
    # Its own folders, and /proc.
    "mps": {"daemons", "is_server", "_start", "_left_of", "_name_of"},
    # Which file systems there are; and the time of an open file.
    "privates": {"_base", "_in_memory", "_touched_at"},
    # A folder of the home that nothing of the container of a preflight reaches.
    "preflight": {"preflight", "_tried"},
    "probing": ALL,
    "processes": ALL,
    "pruning": ALL,
    "pulling": ALL,
    # To where the task's user may go, with that user's rights.
    "runtimes": {"_inside"},
    "serials": {"_write"},
    "supervisor": {"supervise", "launch", "shorten_log", "_last_words"},
    "syncing": {"_read_log", "_log_end", "waiter"},
    "task_files": ALL,
}


def paths_used(source: str) -> Iterator[tuple[str, str]]:
    """Each function that uses files by something other than a descriptor, and what it calls."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Attribute | ast.Name):
                continue
            module, _, name = ast.unparse(node).partition(".")
            is_path = module in {"os", "shutil"} and name not in {"", "path"} | HARMLESS
            is_constant = name.isupper() or name.startswith("environ.")
            if (is_path and not is_constant) or (module, name) == ("open", ""):
                yield function.name, ast.unparse(node)


def test_files_of_tasks_are_used_in_one_module_only() -> None:
    """Whoever adds a name here says with it that no task can write to that place."""
    found = [
        f"{path.stem}.{function}: {call}"
        for path in sorted(NODE_FILES.glob("*.py"))
        for function, call in paths_used(path.read_text())
        if ALLOWED.get(path.stem, set()) is not ALL
        and function not in (ALLOWED.get(path.stem) or set())
    ]

    assert found == []


@pytest.mark.parametrize(
    ("code", "want"),
    [
        pytest.param("open(path)", "open", id="open"),
        pytest.param("os.truncate(path, 0)", "os.truncate", id="truncate"),
        pytest.param("os.path.exists(path)", "os.path.exists", id="exists"),
        pytest.param("shutil.rmtree(path)", "shutil.rmtree", id="rmtree"),
        pytest.param("map(os.stat, paths)", "os.stat", id="not called itself"),
    ],
)
def test_the_walk_sees_a_path(code: str, want: str) -> None:
    assert list(paths_used(f"def f(): {code}")) == [("f", want)]
    assert list(paths_used("def f(): os.close(os.path.join(1, os.O_RDONLY))")) == []


@pytest.fixture
def spec() -> Spec:
    """Of a process: of nobody where the tests run as root."""
    ids = {"uid": NOBODY, "gid": NOBODY} if os.geteuid() == 0 else {"uid": None, "gid": None}
    return spec_of(PLAIN | ids | {"runtime": "process", "secrets": {"KEY": "x"}})


@pytest.fixture
def attempt(tmp_path: Path, spec: Spec) -> Iterator[Attempt]:
    attempt = Attempt(str(tmp_path / "home"), spec.identity)
    Path(attempt.folder).mkdir(parents=True)
    attempt.write("spec.json", {"user": spec.user})
    privates.make(attempt, spec, CONFIG, secrets=True, is_open=True)
    yield attempt
    assert privates.remove(attempt, CONFIG)


@pytest.fixture
def file(attempt: Attempt) -> Path:
    return Path(privates.folder_of(attempt, CONFIG)) / "checkpoint"


@pytest.fixture
def victim(tmp_path: Path, file: Path) -> Iterator[Path]:
    """Somebody else's, longer than a checkpoint file may be, and where a link can be made to it."""
    victim = file.parent.parent / f"{tmp_path.name}-victim"
    victim.write_bytes(b"x" * LONG)
    yield victim
    victim.unlink()


def saved(attempt: Attempt) -> float | None:
    return privates.checkpointed_wall_s(attempt, CONFIG)


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
    kind: str, attempt: Attempt, file: Path, victim: Path
) -> None:
    file.unlink()
    HOSTILE[kind](file, victim)

    assert saved(attempt) is None

    assert victim.stat().st_size == LONG


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_link_to_another_folder_in_place_of_the_tasks_own_is_not_followed(
    attempt: Attempt, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").write_bytes(b"x" * LONG)
    os.chown(tmp_path / "checkpoint", NOBODY, NOBODY)
    privates.remove(attempt, CONFIG)
    file.parent.symlink_to(tmp_path)
    os.chown(file.parent, NOBODY, NOBODY, follow_symlinks=False)

    assert saved(attempt) is None

    assert (tmp_path / "checkpoint").stat().st_size == LONG


def test_a_checkpoint_dated_ahead_is_of_now_and_stays_so(attempt: Attempt, file: Path) -> None:
    before = file.stat().st_ctime
    os.utime(file, (99_999_999_999, 99_999_999_999))

    first, second = saved(attempt), saved(attempt)

    assert first == second
    assert first is not None
    assert before <= first < 99_999_999_999


def test_a_checkpoint_dated_before_all_time_says_nothing(attempt: Attempt, file: Path) -> None:
    os.utime(file, (-5, -5))

    assert saved(attempt) is None


def test_a_folder_is_removed_however_deep_it_is_and_nothing_beside_it(
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
            "true", workdir=str(tmp_path / "closed" / "open"), uid=NOBODY, gid=NOBODY
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
