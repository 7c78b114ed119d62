"""What the processes of a node are, by what the kernel tells of them."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.chaos.machine import read
from tests.chaos.nodes import ChaosNode

# A member in a path of the helper (task/generation-rank) or in the name of its container.
MEMBER: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})[/-]([0-9]+)-[0-9]+")


def supervisors(node: ChaosNode) -> list[int]:
    """The helper's processes that belong to no exchange and last until the work has ended."""
    found = []
    for pid in node.pids("python"):
        parent = read(pid, "stat").rpartition(b")")[2].split()[1:2]
        if parent == [str(node.init).encode()] and str(node.home).encode() in read(pid, "cmdline"):
            found.append(pid)
    return found


def exchanges(node: ChaosNode) -> list[int]:
    """The helper's processes that answer a request right now."""
    detached = set(supervisors(node))
    return [
        pid
        for pid in node.pids("python")
        if pid not in detached and f"{node.home}/helper".encode() in read(pid, "cmdline")
    ]


def attempts_monitored(pid: int) -> set[tuple[str, int]]:
    """Whose monitor it is: by the files that it holds open, and by its own name for it."""
    folder = Path(f"/proc/{pid}/fd")
    words = [read(pid, "cmdline").decode(errors="replace")]
    with suppress(OSError):
        words.extend(os.readlink(path) for path in folder.iterdir())
    return {(match[1], int(match[2])) for text in words for match in MEMBER.finditer(text)}


def variable(pid: int, name: str) -> str:
    """What a process was started with under this name."""
    for part in read(pid, "environ").split(b"\0"):
        key, _, value = part.partition(b"=")
        if key == name.encode():
            return value.decode()
    return ""
