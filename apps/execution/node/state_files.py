"""Where the helper keeps what it must not forget.

<home>/config.json                     installation id, environment of the runtimes, streams
<home>/helper/                         this program, a link to the version in use
<home>/waiters/<pid>                   a pipe per waiting sync, notified of changes;
                                       .new until it is open
<home>/pulls/<digest of the image>/    lock, log, result.json
<home>/attempts/<task>_<generation>-<rank>  an empty file for each folder below, to find it by
<home>/attempts/journal.json           on which boot this began, see unlisted_members.py
<home>/tasks/<task>/lock, fence.json
<home>/tasks/<task>/<generation>-<rank>/
    spec.json       what was asked, without variables and secrets
    alive           locked as long as a supervisor lives, whose number is in it
    starting        the runtime may have been asked to start: never ask it again
    started.json    it runs, or has run
    stop.json       it shall end, and by when
    exit.json       how it ended; kept until the database has it
    cleaned         nothing of it is left outside this folder
    mps.json        which daemon holds it to its share of a GPU (node/mps.py)
    lease.json      until when it may run without hearing more; missing when for ever
    lease.lock      locked while the lease is lengthened
    lease-over      the node has begun to end it because of its lease
    watching        locked as long as its watchdog lives
    log             its output, `dropped` bytes shorter than all it wrote
    *.reserved      space reserved for the file of that name, for a disk that is full
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from typing import Any, Iterator, NamedTuple

from apps.execution.node import clocks, files, processes
from apps.execution.node.crash_points import crash_point
from apps.execution.node.specs import MemberIdentity

BLOCK_BYTES = 4096
# What is written while a task runs: name, reserved bytes, and how often at least it is written.
RESERVED_FILES = (
    ("cleaned", 0, 1),
    ("dropped.json", BLOCK_BYTES, 2),
    ("exit.json", 4 * BLOCK_BYTES, 1),
    ("started.json", BLOCK_BYTES, 1),
    ("starting", 0, 1),
    ("stop.json", BLOCK_BYTES, 2),
)
# The generation of a fence that cannot be read: beyond all that a launch can have.
UNKNOWN = 2**63
DAMAGED_RESULT = "exit.json on the node cannot be read: how it ended is lost"
# Ends the name of what must not be used yet.
UNFINISHED = ".new"
# And the name of a member's folder while it is removed.
REMOVED = ".removed"
MEMBER_FOLDER = re.compile(r"([0-9]{1,16})-([0-9]{1,5})")


_NUMBER = (int, float)
# What the files of a member hold, where they are whole: fields that are there have such a value.
FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "callback-client.json": {"pid": (int,), "pid_start": (int, type(None))},
    "callback.json": {"language": (str,), "script": (str,), "timeout_s": _NUMBER},
    "dropped.json": {"bytes": (int,)},
    "exit.json": {
        "exit_code": (int, type(None)),
        "error": (str,),
        "uptime_s": (*_NUMBER, type(None)),
    },
    "lease.json": {"term_at_s": _NUMBER, "kill_at_s": _NUMBER, "until_s": _NUMBER},
    "spec.json": {"boot_id": (str,), "runtime": (str,), "user": (str,), "secrets": (list,)},
    "started.json": {"pid": (int,), "uptime_s": _NUMBER},
    "stop.json": {"deadline_uptime_s": _NUMBER, "grace_s": _NUMBER, "callback_until_s": _NUMBER},
}
# And these have all of them.
COMPLETE = ("callback.json", "dropped.json", "exit.json", "lease.json", "stop.json")


class Fence(NamedTuple):
    """The newest generation this node has heard of, and which of its members are over."""

    generation: int
    ended: tuple[int, ...]


class MemberFolder(NamedTuple):
    """One member of one admission, as a folder."""

    home: str
    identity: MemberIdentity

    @property
    def folder(self) -> str:
        """Where its files are."""
        name = "%d-%d" % (self.identity.generation, self.identity.rank)
        return os.path.join(self.home, "tasks", self.identity.task_id, name)

    def path(self, name: str) -> str:
        """A file of this attempt."""
        return os.path.join(self.folder, name)

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of this attempt, None when it is not there or damaged."""
        content = files.read_json(self.path(name))
        return content if content is not None and _is_whole(name, content) else None

    def write(self, name: str, content: dict[str, Any], *, durable: bool = False) -> None:
        """Write a JSON file of this attempt and notify the exchanges that wait for news."""
        files.write_json(self.path(name), content, durable=durable)
        notify(self.home)

    def write_once(self, name: str, content: dict[str, Any]) -> None:
        """Like `write`, durable, and what is there already stays."""
        files.write_json_once(self.path(name), content)
        notify(self.home)

    def mark(self, name: str) -> bool:
        """Put an empty file there. True for the first caller, if space was reserved for it."""
        try:
            os.rename(self.path(name + files.RESERVED), self.path(name))
        except FileNotFoundError:
            if not self.has(name):
                files.write_bytes(self.path(name), b"", durable=False)
            return False
        return True

    def has(self, name: str) -> bool:
        """Whether the attempt has such a file."""
        return os.path.exists(self.path(name))

    def exists(self) -> bool:
        """Whether the node knows this attempt, by any file that says so."""
        return any(map(self.has, ("spec.json", "starting", "started.json", "exit.json")))

    def is_supervised(self) -> bool:
        """Whether a supervisor lives."""
        return files.is_locked(self.path("alive"))


def _is_whole(name: str, content: dict[str, Any]) -> bool:
    fields = FIELDS.get(name, {})
    is_complete = name not in COMPLETE or fields.keys() <= content.keys()
    return is_complete and all(
        type(content[field]) in kinds for field, kinds in fields.items() if field in content
    )


def is_done(member: MemberFolder) -> bool:
    """Whether it ended; an attempt whose result was fetched has no files any more."""
    return member.has("exit.json") or not member.exists()


def result_of(member: MemberFolder) -> dict[str, Any] | None:
    """How it ended, None when it has not; a result that is damaged is an end without a code."""
    if not member.has("exit.json"):
        return None
    ended = member.read("exit.json")
    # Checked again: another process may have removed what the database has.
    if ended is not None or not member.has("exit.json"):
        return ended
    return {"exit_code": None, "error": DAMAGED_RESULT, "wall_s": None, "uptime_s": None}


def first_process(member: MemberFolder) -> tuple[int, int | None]:
    """The task's first process on this boot, and when it started; (0, None) where unknown."""
    started = member.read("started.json") or {}
    pid, ticks = started.get("pid"), started.get("pid_start")
    is_known = type(pid) is int and type(ticks) is int and pid > 1
    # Not noted by helpers before this one.
    is_of_boot = started.get("boot_id", clocks.boot_id()) == clocks.boot_id()
    return (int(pid or 0), ticks) if is_known and is_of_boot else (0, None)


def note_supervisor(alive: int) -> None:
    """Write into the locked file who holds it: this process."""
    pid = os.getpid()
    # Ends with a line break: what an earlier, longer entry leaves behind it is not read.
    os.pwrite(alive, b"%d %d\n" % (pid, processes.start_ticks(pid) or 0), 0)


def supervisor_of(member: MemberFolder) -> int | None:
    """The living supervisor's process, None when there is none that said so."""
    try:
        with open(member.path("alive"), "rb") as source:
            pid, _, ticks = source.readline().rstrip(b"\n").partition(b" ")
    except FileNotFoundError:
        return None
    is_whole = pid.isdigit() and ticks.isdigit()
    is_same = is_whole and processes.start_ticks(int(pid)) == int(ticks)
    return int(pid) if is_same else None


def waiter_path(home: str, name: str) -> str:
    """Where the pipe of one waiting sync is; its folder is made."""
    folder = os.path.join(home, "waiters")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, name)


def notify(home: str) -> None:
    """Wake every sync that waits for news."""
    for name in _entries(os.path.join(home, "waiters")):
        if name.endswith(UNFINISHED):
            continue
        path = waiter_path(home, name)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            # Nobody reads it any more.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            continue
        # Full: it is awake already. Broken: it went away just now, and took the need along.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(descriptor, b"!")
        os.close(descriptor)


def container_name(installation: str, identity: MemberIdentity) -> str:
    """The one name under which this member can exist in a runtime."""
    return "rpm-%s-%s-%d-%d" % (installation, *identity)


def task_lock(home: str, task_id: str) -> str:
    """The file whose lock is held while something about the task is decided."""
    folder = os.path.join(home, "tasks", task_id)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, "lock")


@contextlib.contextmanager
def decided(home: str, task_id: str) -> Iterator[bool]:
    """Hold the task's lock for a report, which waits for nobody; False where it is taken."""
    lock = files.take_lock(task_lock(home, task_id), wait=False)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def read_fence(home: str, task_id: str) -> Fence:
    """The task's fence; generation 0 when the node has never heard of the task.

    `UNKNOWN` where the file is damaged: any launch could be a second start.
    """
    path = _fence_path(home, task_id)
    content = files.read_json(path)
    if content is None and not os.path.exists(path):
        return Fence(0, ())
    content = content or {}
    generation, ended = content.get("generation"), content.get("ended")
    is_whole = type(generation) is int and isinstance(ended, list)
    if not is_whole or not all(type(rank) is int for rank in ended or ()):
        return Fence(UNKNOWN, ())
    return Fence(int(generation or 0), tuple(ended or ()))


def raise_fence(home: str, identity: MemberIdentity, *, ended: bool) -> None:
    """Refuse older generations from now on and, if `ended`, this member as well."""
    fence = read_fence(home, identity.task_id)
    if fence.generation > identity.generation:
        return
    over = set(fence.ended) if fence.generation == identity.generation else set()
    if ended:
        over.add(identity.rank)
    new = Fence(identity.generation, tuple(sorted(over)))
    if new != fence:
        path = _fence_path(home, identity.task_id)
        files.write_json(path, {"generation": new.generation, "ended": new.ended}, durable=True)
        if not fence.generation:
            files.sync_folder(os.path.join(home, "tasks"))


def _fence_path(home: str, task_id: str) -> str:
    return os.path.join(home, "tasks", task_id, "fence.json")


def members(home: str) -> Iterator[MemberFolder]:
    """Every attempt the node knows, ordered by task, generation and rank.

    Its cost grows with these attempts, not with the fences of all tasks there have ever been.
    """
    for task_id in sorted({one.identity.task_id for one in marked_members(home)}):
        yield from members_of(home, task_id)


def marked_members(home: str) -> Iterator[MemberFolder]:
    """The members that `add` has marked, whatever has become of their folders."""
    for name in _entries(os.path.join(home, "attempts")):
        task_id, _, member = name.partition("_")
        match = MEMBER_FOLDER.fullmatch(member)
        if match:
            identity = MemberIdentity(task_id, int(match.group(1)), int(match.group(2)))
            yield MemberFolder(home, identity)


def is_torn(member: MemberFolder) -> bool:
    """Whether its folder is gone although nothing is removing it."""
    return not os.path.isdir(member.folder) and not os.path.isdir(member.folder + REMOVED)


def add(member: MemberFolder) -> None:
    """Make the attempt's folder; found from now on, known once `spec.json` is in it.

    The task may fill the disk; space for what has to be written then is reserved here.
    """
    os.makedirs(member.folder, mode=0o700, exist_ok=True)
    os.makedirs(os.path.dirname(_mark(member)), mode=0o700, exist_ok=True)
    files.write_bytes(_mark(member), b"", durable=True)
    files.sync_folder(os.path.dirname(member.folder))
    files.sync_folder(member.home)
    for name, size, times in RESERVED_FILES:
        files.reserve(member.path(name), size=size, times=times)
    files.reserve(_fence_path(member.home, member.identity.task_id), size=BLOCK_BYTES, times=1)


def restore_marks(home: str) -> None:
    """Mark every member that has a folder: the marks were lost, or there were never any."""
    os.makedirs(os.path.join(home, "attempts"), mode=0o700, exist_ok=True)
    for task_id in _entries(os.path.join(home, "tasks")):
        for member in members_of(home, task_id):
            files.write_bytes(_mark(member), b"", durable=False)


def remove_mark(member: MemberFolder) -> None:
    """Remove the mark of a member that has no folder, unless something of it is decided now."""
    with decided(member.home, member.identity.task_id) as is_free:
        if is_free and not os.path.isdir(member.folder):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_mark(member))


def remove(member: MemberFolder) -> None:
    """Remove all of the attempt; its fence stays and says that it is over."""
    raise_fence(member.home, member.identity, ended=True)
    crash_point("node.finish.dropping")
    # In one step: of half a folder nobody could say what is to become of it.
    removed = member.folder + REMOVED
    if not os.path.isdir(removed):
        os.rename(member.folder, removed)
    shutil.rmtree(removed)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_mark(member))
    if not members_of(member.home, member.identity.task_id):
        # Fences are many and stay for long.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_fence_path(member.home, member.identity.task_id) + files.RESERVED)
    notify(member.home)


def _mark(member: MemberFolder) -> str:
    task_id, generation, rank = member.identity
    return os.path.join(member.home, "attempts", "%s_%d-%d" % (task_id, generation, rank))


def members_of(home: str, task_id: str) -> list[MemberFolder]:
    """The attempts of one task, oldest first."""
    found = []
    for name in _entries(os.path.join(home, "tasks", task_id)):
        match = MEMBER_FOLDER.fullmatch(name)
        if match:
            identity = MemberIdentity(task_id, int(match.group(1)), int(match.group(2)))
            found.append(MemberFolder(home, identity))
    return sorted((one for one in found if one.exists()), key=lambda one: one.identity)


def is_of_this_boot(member: MemberFolder) -> bool:
    """Whether the attempt was launched since the node booted.

    Where no file says so its age does, by a clock that may have been set meanwhile.
    """
    for name in ("spec.json", "started.json"):
        boot_id = (member.read(name) or {}).get("boot_id")
        if boot_id is not None:
            return bool(boot_id == clocks.boot_id())
    is_there = member.has("spec.json")
    try:
        written_at = os.stat(member.path("spec.json") if is_there else member.folder).st_mtime
    except FileNotFoundError:
        return False
    return written_at >= clocks.wall_s() - clocks.uptime_s() or member.is_supervised()


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
