"""The database as the machine needs it: tasks, attempts, what is known of nodes."""

from dataclasses import dataclass, field
from typing import Literal

from apps.execution.protocol.requests import MemberKey

Phase = Literal["allocated", "starting", "running", "stopping", "over"]


@dataclass
class Task:
    """`state` is queued, held or done; `result` is written once."""

    name: str
    policy: Literal["wait", "requeue", "fail"]
    state: Literal["queued", "held", "done"] = "queued"
    generation: int = 0
    result: str = ""


@dataclass
class Attempt:
    """One admission, as the ledger has it. `member_state` is what its node last reported."""

    member: MemberKey
    node: str
    phase: Phase = "allocated"
    member_state: Literal["allocated", "starting", "running", "exited"] = "allocated"
    token: int = 0
    claimed_at: float = 0.0
    is_sent: bool = False
    boot_id: str = ""
    lease_until_s: float | None = None
    target: str = ""
    is_acknowledged: bool = False


@dataclass
class NodeRow:
    boot_id: str
    uptime_s: float
    state: Literal["healthy", "suspect"] = "healthy"
    is_off: bool = False
    unknown: int = 0
    reported_since_confirmed: bool = False


@dataclass
class Database:
    """All of it; a backup is a deep copy."""

    tasks: dict[str, Task] = field(default_factory=dict)
    attempts: dict[MemberKey, Attempt] = field(default_factory=dict)
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    is_doubted: bool = False
    is_confirmed: bool = False

    def live(self, task: str) -> Attempt | None:
        """The attempt that holds something; the ledger knows one at most."""
        found = [
            one
            for one in self.attempts.values()
            if one.member.task_id == task and one.phase != "over"
        ]
        assert len(found) <= 1, f"{task} has {len(found)} live attempts"
        return found[0] if found else None
