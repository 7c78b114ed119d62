"""Where the helper keeps what it must not forget.

<home>/config.json                     installation id, environment of the runtimes
<home>/helper/                         this program, a link to the version in use
<home>/waiters/<pid>                   a pipe per waiting sync, rung when something changes
<home>/pulls/<digest of the image>/    lock, log, result.json
<home>/attempts/<task>_<generation>-<rank>  an empty file for each folder below, to find it by
<home>/tasks/<task>/lock, fence.json
<home>/tasks/<task>/<generation>-<rank>/
    spec.json       what was asked, without variables and secrets
    alive           locked as long as a supervisor lives
    starting        the runtime may have been asked to start: never ask it again
    started.json    it runs, or has run
    stop.json       it shall end, and by when
    exit.json       how it ended; kept until the database has it
    log             its output, `dropped` bytes shorter than all it wrote
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from typing import Any, Iterator, NamedTuple

from apps.execution.node import clocks, files
from apps.execution.node.specs import Identity

ATTEMPT_FOLDER = re.compile(r"([0-9]{1,16})-([0-9]{1,5})")


class Fence(NamedTuple):
    """The newest generation this node has heard of, and which of its members are over."""

    generation: int
    ended: tuple[int, ...]


class Attempt(NamedTuple):
    """One member of one admission, as a folder."""

    home: str
    identity: Identity

    @property
    def folder(self) -> str:
        """Where its files are."""
        name = "%d-%d" % (self.identity.generation, self.identity.rank)
        return os.path.join(self.home, "tasks", self.identity.task_id, name)

    def path(self, name: str) -> str:
        """A file of this attempt."""
        return os.path.join(self.folder, name)

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of this attempt, None when it is not there."""
        return files.read_json(self.path(name))

    def write(self, name: str, content: dict[str, Any], *, durable: bool = False) -> None:
        """Write a JSON file of this attempt and wake whoever waits for news."""
        files.write_json(self.path(name), content, durable=durable)
        ring(self.home)

    def has(self, name: str) -> bool:
        """Whether the attempt has such a file."""
        return os.path.exists(self.path(name))

    def exists(self) -> bool:
        """Whether the node knows this attempt."""
        return self.has("spec.json")

    def is_supervised(self) -> bool:
        """Whether a supervisor lives."""
        return files.is_locked(self.path("alive"))


def ring(home: str) -> None:
    """Wake every sync that waits for news."""
    folder = os.path.join(home, "waiters")
    for name in _entries(folder):
        path = os.path.join(folder, name)
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


def container_name(installation: str, identity: Identity) -> str:
    """The one name under which this member can exist in a runtime."""
    return "rpm-%s-%s-%d-%d" % (installation, *identity)


def task_lock(home: str, task_id: str) -> str:
    """The file whose lock is held while something about the task is decided."""
    folder = os.path.join(home, "tasks", task_id)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, "lock")


def read_fence(home: str, task_id: str) -> Fence:
    """The task's fence; generation 0 when the node has never heard of the task."""
    content = files.read_json(os.path.join(home, "tasks", task_id, "fence.json")) or {}
    return Fence(int(content.get("generation", 0)), tuple(content.get("ended", ())))


def raise_fence(home: str, identity: Identity, *, ended: bool) -> None:
    """Refuse older generations from now on and, if `ended`, this member as well."""
    fence = read_fence(home, identity.task_id)
    if fence.generation > identity.generation:
        return
    over = set(fence.ended) if fence.generation == identity.generation else set()
    if ended:
        over.add(identity.rank)
    new = Fence(identity.generation, tuple(sorted(over)))
    if new != fence:
        path = os.path.join(home, "tasks", identity.task_id, "fence.json")
        files.write_json(path, {"generation": new.generation, "ended": new.ended}, durable=True)


def attempts(home: str) -> Iterator[Attempt]:
    """Every attempt the node knows, ordered by task, generation and rank.

    Costs by what is there, not by the fences of all the tasks that have ever been.
    """
    marks = (name.partition("_") for name in _entries(os.path.join(home, "attempts")))
    for task_id in sorted({task_id for task_id, _, _ in marks}):
        yield from attempts_of(home, task_id)


def add(attempt: Attempt) -> None:
    """Make the attempt's folder; found from now on, known once `spec.json` is in it."""
    os.makedirs(os.path.dirname(_mark(attempt)), mode=0o700, exist_ok=True)
    files.write_bytes(_mark(attempt), b"", durable=False)
    os.makedirs(attempt.folder, mode=0o700, exist_ok=True)


def remove(attempt: Attempt) -> None:
    """Remove all of the attempt; its fence stays and says that it is over."""
    raise_fence(attempt.home, attempt.identity, ended=True)
    shutil.rmtree(attempt.folder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_mark(attempt))
    ring(attempt.home)


def _mark(attempt: Attempt) -> str:
    task_id, generation, rank = attempt.identity
    return os.path.join(attempt.home, "attempts", "%s_%d-%d" % (task_id, generation, rank))


def attempts_of(home: str, task_id: str) -> list[Attempt]:
    """The attempts of one task, oldest first."""
    found = []
    for name in _entries(os.path.join(home, "tasks", task_id)):
        match = ATTEMPT_FOLDER.fullmatch(name)
        if match:
            identity = Identity(task_id, int(match.group(1)), int(match.group(2)))
            found.append(Attempt(home, identity))
    return sorted((one for one in found if one.exists()), key=lambda one: one.identity)


def is_of_this_boot(attempt: Attempt) -> bool:
    """Whether the attempt was launched since the node booted."""
    return (attempt.read("spec.json") or {}).get("boot_id") == clocks.boot_id()


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
