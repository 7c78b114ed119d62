"""A node as the control plane meets it: fences, members, leases, boots. Plain Python, no clock."""

from dataclasses import dataclass, field
from typing import Literal

from apps.execution.protocol.answers import ReportedMember
from apps.execution.protocol.requests import MemberKey

State = Literal["created", "running", "exited"]


@dataclass
class MemberRecord:
    """A member in the node's books."""

    state: State
    lease_until_s: float | None
    exit_code: int | None = None
    is_stop_asked: bool = False
    is_lease_over: bool = False


@dataclass
class Node:
    """What a node does with what arrives. `uptime_s` goes on while it has power."""

    name: str
    boot: int = 1
    uptime_s: float = 100.0
    is_on: bool = True
    members: dict[MemberKey, MemberRecord] = field(default_factory=dict)
    # The newest generation heard of per task, and whether that one is over here.
    fences: dict[str, tuple[int, bool]] = field(default_factory=dict)
    starts: list[MemberKey] = field(default_factory=list)

    @property
    def boot_id(self) -> str:
        return f"{self.name}-{self.boot}"

    def alive(self) -> list[MemberKey]:
        """What really runs."""
        return [one for one, held in self.members.items() if self.is_on and held.state == "running"]

    def launch(
        self, member: MemberKey, *, boot_id: str, not_after_s: float, lease_until_s: float | None
    ) -> str:
        """The state of the member, or the code of a refusal."""
        if boot_id != self.boot_id:
            return "other_boot"
        is_over = lease_until_s is not None and lease_until_s <= self.uptime_s
        if not_after_s < self.uptime_s or is_over:
            return "late"
        generation, ended = self.fences.get(member.task_id, (0, False))
        if member.generation < generation:
            return "fenced"
        if member.generation == generation and ended:
            return "ended"
        if any(one.task_id == member.task_id and one != member for one in self.alive()):
            return "older_alive"
        if member not in self.members:
            self.fences[member.task_id] = (member.generation, False)
            self.members[member] = MemberRecord("running", lease_until_s)
            self.starts.append(member)
        return self.members[member].state

    def stop(self, member: MemberKey, *, is_kill: bool) -> str:
        """`absent` fences: what is not here may not come."""
        held = self.members.get(member)
        if held is None:
            self._fence(member)
            return "absent"
        if held.state == "exited":
            return "exited"
        held.is_stop_asked = True
        if is_kill:
            self._end(held, 137)
        return "stopping"

    def end(self, member: MemberKey, code: int) -> None:
        """It ends by itself, or heeds the stop."""
        self._end(self.members[member], code)

    def renew(self, member: MemberKey, until_s: float) -> None:
        """Only ever later."""
        held = self.members.get(member)
        if held is not None and held.lease_until_s is not None:
            held.lease_until_s = max(held.lease_until_s, until_s)

    def acknowledge(self, member: MemberKey) -> bool:
        """Drop a member that ended; whether there was one."""
        held = self.members.get(member)
        if held is None or held.state != "exited":
            return False
        del self.members[member]
        self._fence(member)
        return True

    def report(self) -> tuple[ReportedMember, ...]:
        return tuple(
            ReportedMember(
                member.task_id,
                member.generation,
                member.rank,
                held.state,
                held.is_stop_asked,
                started_wall_s=0.0,
                exit_code=held.exit_code,
                is_lease_over=held.is_lease_over,
            )
            for member, held in self.members.items()
        )

    def pass_time(self, seconds: float) -> None:
        """Watchdogs end what was not renewed."""
        if not self.is_on:
            return
        self.uptime_s += seconds
        for held in self.members.values():
            until = held.lease_until_s
            if held.state == "running" and until is not None and until <= self.uptime_s:
                held.is_lease_over = True
                self._end(held, 137)

    def power_off(self) -> list[MemberKey]:
        """What ran is gone, without a result."""
        lost = self.alive()
        self.is_on = False
        return lost

    def power_on(self) -> None:
        """Another boot, from zero; what left no result is cleared away and fenced."""
        self.is_on, self.boot, self.uptime_s = True, self.boot + 1, 1.0
        for member, held in list(self.members.items()):
            if held.state != "exited":
                del self.members[member]
                self._fence(member)

    def _fence(self, member: MemberKey) -> None:
        generation, _ = self.fences.get(member.task_id, (0, False))
        if member.generation >= generation:
            self.fences[member.task_id] = (member.generation, True)

    @staticmethod
    def _end(held: MemberRecord, code: int) -> None:
        if held.state != "exited":
            held.state, held.exit_code = "exited", code
