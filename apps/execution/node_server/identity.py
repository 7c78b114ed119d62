"""Names of processes that serve nodes; others on the same machine see which are dead."""

import os
import secrets
from hashlib import blake2s
from pathlib import Path


def process_token() -> str:
    """A name for this process, unlike that of every other one; at most 36 characters."""
    pid = os.getpid()
    return f"{_machine_boot()}.{pid}.{_started(pid) or 0}.{secrets.token_hex(3)}"


def is_dead(token: str) -> bool:
    """Whether the process of that name is certainly gone: it was one of this machine and boot."""
    parts = token.split(".")
    if (
        len(parts) != 4
        or not parts[1].isdigit()
        or parts[0] != _machine_boot()
        or not _machine_boot()
    ):
        return False
    return str(_started(int(parts[1]))) != parts[2]


def is_here(token: str) -> bool:
    """Whether the process of that name runs on this machine, where it can be seen from here."""
    return token.split(".", maxsplit=1)[0] == _machine_boot() != "" and not is_dead(token)


def _machine_boot() -> str:
    """This boot of this machine, and which processes one can see here; empty where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        view = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return blake2s(f"{boot} {view}".encode(), digest_size=4).hexdigest()


def _started(pid: int) -> int | None:
    """When a process began, in ticks since boot; None when there is none, or only its remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold anything, spaces included.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else int(fields[18])
