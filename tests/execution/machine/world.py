"""Books, nodes, and a network between them that loses, doubles and delays what it carries.

Everything that decides is the code under test: `reconcile` and the arithmetic of leases. What it
asks for is carried out as `apps.execution.services` does it. Methods are the steps that may happen
in any order; each leaves the promise intact, or asserts.
"""

from copy import deepcopy

from apps.execution import leases
from apps.execution.protocol.requests import MemberKey
from tests.execution.machine.control_plane import (
    DRIFTS,
    LEASE_S,
    WINDOW_S,
    Answer,
    ControlPlane,
    Message,
)
from tests.execution.machine.database import Attempt, Task


class World(ControlPlane):
    """Two nodes, and the steps that may happen."""

    # --- what people and passes do -----------------------------------------------------------

    def submit(self, policy: str) -> None:
        name = f"t{len(self.database.tasks) + 1000 * self.epoch}"
        self.database.tasks[name] = Task(name, policy)  # type: ignore[arg-type]  # one of the three

    def admit(self, task: Task, node: str) -> None:
        row = self.database.nodes[node]
        if task.state != "queued" or row.state != "healthy" or self.database.is_doubted:
            return
        task.generation, task.state = task.generation + 1, "held"
        member = MemberKey(task.name, task.generation)
        self.database.attempts[member] = Attempt(member, node)

    def stop(self, attempt: Attempt, target: str) -> None:
        if attempt.phase in {"allocated", "starting", "running"}:
            attempt.phase, attempt.target = "stopping", target
            if attempt.member_state == "allocated" and not attempt.is_sent:
                self._end(attempt, None)

    # --- what the control plane does ---------------------------------------------------------

    def launch(self, attempt: Attempt) -> None:
        """Claim, write the lease, send."""
        clock = self.clocks[attempt.node]
        is_free = attempt.member_state == "allocated" or (
            attempt.member_state == "starting" and attempt.token != self.token
        )
        if attempt.phase not in {"allocated", "starting"} or not is_free:
            return
        if attempt.node not in self.answered or self.database.is_doubted:
            return
        attempt.phase = attempt.member_state = "starting"
        attempt.token, attempt.claimed_at = self.token, self.now
        uptime = clock.uptime_s + self.now - clock.read_at
        before = attempt.lease_until_s if attempt.boot_id == clock.boot_id else None
        if before is not None or self.database.tasks[attempt.member.task_id].policy != "wait":
            attempt.lease_until_s = max(uptime + leases.granted_s(LEASE_S), before or 0.0)
        attempt.boot_id, attempt.is_sent = clock.boot_id, True
        self.messages.append(
            Message(
                attempt.node,
                attempt.member,
                self.token,
                clock.boot_id,
                uptime + WINDOW_S,
                attempt.lease_until_s,
            )
        )

    def send_stop(self, attempt: Attempt, *, is_kill: bool = False) -> None:
        if attempt.phase == "stopping" and attempt.node in self.answered:
            self.messages.append(
                Message(attempt.node, attempt.member, self.token, is_stop=True, is_kill=is_kill)
            )

    def take_over(self) -> None:
        """The process is killed; another one begins with what the books say."""
        self._take_over()

    def judge(self, name: str) -> None:
        """Give up what a silent node has certainly ended, or what is declared off."""
        clock, row = self.clocks[name], self.database.nodes[name]
        for attempt in self._maybe_alive(name):
            until = attempt.lease_until_s
            is_judged = (
                until is not None
                and attempt.boot_id == clock.boot_id
                and self.is_over(until, clock, at=self.now)
            )
            if row.is_off or is_judged:
                row.state = "suspect"
                self._end(attempt, None, is_lost=True)

    def fall_silent(self, name: str) -> None:
        if name in self.cut or not self.nodes[name].is_on:
            self.database.nodes[name].state = "suspect"
            self.answered.discard(name)

    def declare_off(self, name: str) -> None:
        """Administrators tell the truth."""
        if not self.nodes[name].is_on and self.database.nodes[name].state == "suspect":
            self.database.nodes[name].is_off = True

    def backup(self) -> None:
        self.kept = deepcopy(self.database)

    def restore(self) -> None:
        if self.kept is None:
            return
        self.database = deepcopy(self.kept)
        self.database.is_doubted, self.database.is_confirmed = True, False
        self.was_restored = True
        self.epoch += 1
        self._take_over()

    def confirm(self) -> None:
        if self.database.is_doubted and not self.database.is_confirmed:
            self.database.is_confirmed = True
            for row in self.database.nodes.values():
                row.reported_since_confirmed = False

    def settle(self) -> None:
        rows = self.database.nodes.values()
        is_clear = all(
            row.is_off or (row.reported_since_confirmed and not row.unknown) for row in rows
        )
        if self.database.is_doubted and self.database.is_confirmed and is_clear:
            self.database.is_doubted = self.database.is_confirmed = False

    # --- what the network does ---------------------------------------------------------------

    def deliver(self, index: int, *, is_kept: bool, is_answered: bool) -> None:
        """One message arrives, perhaps not for the last time, and its answer perhaps not."""
        message = self.messages[index]
        node = self.nodes[message.node]
        if message.node in self.cut or not node.is_on:
            return
        if not is_kept:
            del self.messages[index]
        if message.is_stop:
            reply = node.stop(message.member, is_kill=message.is_kill)
        else:
            reply = node.launch(
                message.member,
                boot_id=message.boot_id,
                not_after_s=message.not_after_s,
                lease_until_s=message.lease_until_s,
            )
        attempt = self.database.attempts.get(message.member)
        if is_answered and message.token == self.token and attempt is not None:
            self._receive(attempt, message, reply)

    def lose(self, index: int) -> None:
        message = self.messages.pop(index)
        attempt = self.database.attempts.get(message.member)
        if attempt is not None and message.token == attempt.token and not message.is_stop:
            attempt.token = 0

    def ask(self, name: str) -> None:
        """A sync is sent, and answered; the answer is on its way."""
        node = self.nodes[name]
        if name in self.cut or not node.is_on or name in self.answers:
            return
        before = {one.member: one.member_state for one in self._of(name)}
        for member in self.acks[name]:
            attempt = self.database.attempts.get(member)
            if node.acknowledge(member) and attempt is not None:
                assert attempt.phase == "over", f"the result of {member} is thrown away"
        self._renew(name)
        self.answers[name] = Answer(
            name, self.token, before, node.boot_id, node.uptime_s, node.report(), self.epoch
        )

    def answer(self, name: str, *, is_lost: bool) -> None:
        answer = self.answers.pop(name, None)
        if answer is not None and not is_lost and answer.token == self.token:
            self._apply(answer)

    # --- what nodes and time do --------------------------------------------------------------

    def finish(self, name: str, member: MemberKey, code: int) -> None:
        if member in self.nodes[name].alive():
            self.nodes[name].end(member, code)

    def power(self, name: str, *, is_on: bool) -> None:
        node = self.nodes[name]
        if node.is_on and not is_on:
            node.power_off()
            self.answers.pop(name, None)
        elif is_on and not node.is_on:
            node.power_on()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for name, node in self.nodes.items():
            node.pass_time(seconds * DRIFTS[name])

    # --- the promise -------------------------------------------------------------------------

    def check(self) -> None:
        """No two live copies, whatever the books believe."""
        places: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            for member in node.alive():
                places.setdefault(member.task_id, []).append(f"{member.generation} on {name}")
        for task, found in places.items():
            assert len(found) == 1, f"{task} runs as {found}"
        for name in self.database.tasks:
            self.database.live(name)
