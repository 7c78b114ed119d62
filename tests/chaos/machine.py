"""Processes, files and clocks of the machine that a chaos run uses; most of it needs root."""

import os
import signal
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tools.packages import find_program


def run(*words: str | Path, check: bool = True) -> None:
    """Run a tool of the system; its words are shown when it fails.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run([str(word) for word in words], capture_output=True, check=False)
    if check and done.returncode != 0:
        command = " ".join(map(str, words))
        raise RuntimeError(f"{command}: {done.stderr.decode(errors='replace').strip()}")


def boot_clock() -> float:
    """The clock that nodes, tasks and the run share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def set_clock(path: Path, seconds: float) -> None:
    """Write the shift in place: programs have the file mapped."""
    with path.open("r+b" if path.exists() else "wb") as target:
        target.write(struct.pack("<q", int(seconds * 1e9)))


def fill(balloon: Path, *, is_full: bool) -> None:
    """Take every free byte of a disk, or give them back."""
    balloon.unlink(missing_ok=True)
    if not is_full:
        return
    with balloon.open("wb") as target:
        size, step = 0, 64 * 2**20
        while step >= 4096:
            # Others write meanwhile: until the disk itself says that not even a page is left.
            try:
                os.posix_fallocate(target.fileno(), size, step)
                size += step
            except OSError:
                step //= 2


def clear_cgroups(containers: set[str]) -> None:
    """Remove the groups of containers whose processes are gone, as a reboot does."""
    root = Path("/sys/fs/cgroup")
    for pattern in ("libpod_parent/libpod-*", "*/libpod_parent/libpod-*"):
        for path in root.glob(pattern):
            if path.name.rpartition("-")[2] in containers:
                for folder in [*path.glob("*/"), path]:
                    with suppress(OSError):
                        folder.rmdir()


def make_key(path: Path) -> None:
    """A new key pair, over an old one."""
    path.unlink(missing_ok=True)
    program = find_program("ssh-keygen") or "ssh-keygen"
    command = [program, "-q", "-t", "ed25519", "-N", "", "-C", "chaos", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Signal a process; False when it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(roots: list[int]) -> list[int]:
    """The processes below these; a container's are below its monitor, which is below the init."""
    below: dict[int, list[int]] = {}
    for pid in all_pids():
        fields = read(pid, "stat").rpartition(b")")[2].split()
        if fields:
            below.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    ends = list(roots)
    while ends:
        next_ones = below.get(ends.pop(), [])
        found += next_ones
        ends += next_ones
    return found


def children(pid: int) -> list[int]:
    """Its direct children."""
    found = read(pid, f"task/{pid}/children")
    return [int(word) for word in found.split()]


def read(pid: int, name: str) -> bytes:
    """A file of /proc, empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
