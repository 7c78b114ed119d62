"""What is written down when a task starts and when it ends."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from apps.execution.node import clocks, leases, private_files, processes, state_files
from apps.execution.node.state_files import MemberFolder

RETRY_S = 0.1
RETRY_HIGHEST_S = 5.0
# The space reserved for a result holds this many characters, each written as an escape.
ERROR_CHARACTERS = 2000


def note_started(member: MemberFolder, pid: int) -> None:
    """Write down that the task runs; its end is followed even if the disk refuses."""
    content = {
        "pid": pid,
        "pid_start": processes.birth_ticks(pid),
        "boot_id": clocks.boot_id(),
        "wall_s": clocks.wall_s(),
        "uptime_s": clocks.uptime_s(),
    }
    with contextlib.suppress(OSError):
        member.write("started.json", content)


def insist_on_exit(
    member: MemberFolder, config: dict[str, Any], code: int | None, error: str
) -> None:
    """`note_exit`, again and again where the disk refuses: a result is never given up."""
    wait_s = RETRY_S
    while not state_files.is_done(member):
        try:
            note_exit(member, config, code, error)
        except OSError:
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_HIGHEST_S)


def note_exit(member: MemberFolder, config: dict[str, Any], code: int | None, error: str) -> None:
    """Write down how it ended, before anything of it is removed. What is written first stays.

    Args:
        code: None when the task never started or its code is lost.
        error: the node's own words when the task could not be started or followed.
    """
    is_lease_over = leases.is_over(member)
    member.write_once(
        "exit.json",
        {
            "exit_code": code,
            "error": leases.WORDS if is_lease_over else error[-ERROR_CHARACTERS:],
            "wall_s": clocks.wall_s(),
            "uptime_s": clocks.uptime_s(),
            "is_lease_over": is_lease_over,
            "checkpointed_wall_s": private_files.checkpointed_wall_s(member, config),
        },
    )
