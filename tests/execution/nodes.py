"""Builders for tests that talk to a helper."""

import secrets
from collections.abc import Callable
from itertools import count
from time import monotonic

from msgspec import Struct

from apps.execution.client import NodeClient
from apps.execution.protocol.answers import (
    LaunchAnswer,
    NodeInventory,
    ReportedMember,
    SyncReport,
    decode,
)
from apps.execution.protocol.outcomes import (
    Answered,
    ImageMissing,
    NodeRefusal,
    NodeUnreachable,
    StartFailed,
)
from apps.execution.protocol.requests import (
    ContainerSpec,
    LaunchRequest,
    LogPosition,
    MemberKey,
    NodeRequest,
    ProbeRequest,
    StopRequest,
    SyncRequest,
    encode,
)
from apps.execution.transport.local import LocalTransport
from apps.execution.transport.ssh import SshTransport
from tests.services.sshd import SshdNode
from tests.services.timeouts import scale_timeout

# Of this process alone: what runs is found by this mark, and tests run in parallel.
INSTALLATION = f"test{secrets.token_hex(4)}"
PATIENCE_S = 30.0
Launching = Answered[LaunchAnswer] | NodeRefusal | NodeUnreachable | ImageMissing | StartFailed

SPEC_FIELDS = frozenset(ContainerSpec.__struct_fields__)

_numbers = count(1)


class PruneRequest(NodeRequest, frozen=True, kw_only=True, tag="prune"):
    """A verb that nodes understand and the control plane does not send."""

    images_unused_days: float | None = None


class PruneAnswer(Struct, frozen=True):
    """Names of what was removed."""

    containers: tuple[str, ...]
    images: tuple[str, ...]


class TestedNode:
    """A client of one node, and what its reports said so far."""

    __test__ = False

    def __init__(self, client: NodeClient) -> None:
        self.client = client
        self.logs: dict[MemberKey, bytes] = {}
        # Up to where they are read; further than they are long where the node dropped bytes.
        self.log_ends: dict[MemberKey, int] = {}
        self.seen = ""

    def launch(self, *command: str, **changes: object) -> Launching:
        """Launch a process that may start within the next minute, on the node's present boot."""
        return self.client.launch(self.launch_request(*command, **changes))

    def launch_request(self, *command: str, **changes: object) -> LaunchRequest:
        """What `launch` sends; every field can be replaced."""
        clocks = self.probe().clocks
        fields: dict[str, object] = {
            "installation": INSTALLATION,
            "task_id": f"t{next(_numbers)}",
            "generation": 1,
            "boot_id": clocks.boot_id,
            "not_after_s": clocks.uptime_s + 60,
            "runtime": "process",
            "command": command,
            "allow_process": True,
        }
        given = fields | changes
        spec = {name: given.pop(name) for name in list(given) if name in SPEC_FIELDS}
        return LaunchRequest(**given, spec=ContainerSpec(**spec))  # type: ignore[arg-type]  # the helper checks each field

    def probe(self) -> Answered[NodeInventory]:
        """The node's inventory."""
        outcome = self.client.probe(ProbeRequest(installation=INSTALLATION))
        assert isinstance(outcome, Answered), outcome
        return outcome

    def prune(self, *, images_unused_days: float | None = None) -> PruneAnswer:
        """Remove what is no longer needed, and images only after so many days."""
        request = PruneRequest(installation=INSTALLATION, images_unused_days=images_unused_days)
        content = self.client.transport.exchange(encode(request), timeout_s=PATIENCE_S)
        _, answer = decode(content, PruneAnswer)
        assert isinstance(answer, PruneAnswer), answer
        return answer

    def sync(self, *acknowledged: MemberKey, **changes: object) -> SyncReport:
        """One exchange; log bytes are gathered in `logs` for every member in it."""
        fields: dict[str, object] = {"installation": INSTALLATION, "acknowledged": acknowledged}
        outcome = self.client.sync(SyncRequest(**(fields | changes)))  # type: ignore[arg-type]  # as above
        assert isinstance(outcome, Answered), outcome
        self.seen = outcome.answer.version
        for part in outcome.answer.logs:
            known = self.logs.get(part.member, b"")
            self.logs[part.member] = known + part.content
            self.log_ends[part.member] = part.offset + len(part.content)
        return outcome.answer

    def wait_for(
        self, member: MemberKey, condition: Callable[[ReportedMember], bool]
    ) -> ReportedMember:
        """Follow the node until its report of this member fulfils the condition."""
        began = monotonic()
        while monotonic() - began < scale_timeout(PATIENCE_S):
            report = self.sync(seen=self.seen, wait_s=5, logs=(self.position(member),))
            for reported in report.members:
                if reported.member == member and condition(reported):
                    return reported
        raise TimeoutError(f"{member}: {report}, {self.logs.get(member)!r}")

    def wait_for_exit(self, member: MemberKey) -> ReportedMember:
        """Follow the member to its end and to the end of its log."""
        return self.wait_for(
            member,
            lambda one: one.state == "exited" and self.log_ends.get(member, 0) >= one.log_bytes,
        )

    def wait_for_log(self, member: MemberKey, words: bytes) -> None:
        """Follow the member until its log holds these bytes."""
        self.wait_for(member, lambda _: words in self.logs.get(member, b""))

    def stop(self, member: MemberKey, *, grace_s: float = 10, is_kill: bool = False) -> str:
        """Ask the member to end; the state the node answers."""
        outcome = self.client.stop(
            StopRequest(
                installation=INSTALLATION,
                task_id=member.task_id,
                generation=member.generation,
                rank=member.rank,
                grace_s=grace_s,
                is_kill=is_kill,
            )
        )
        assert isinstance(outcome, Answered), outcome
        return outcome.answer.state

    def position(self, member: MemberKey) -> LogPosition:
        """Where the gathered log of the member ends."""
        offset = self.log_ends.get(member, 0)
        return LogPosition(member.task_id, member.generation, member.rank, offset)


def member_of(request: LaunchRequest) -> MemberKey:
    """Which member a launch request is about."""
    return MemberKey(request.task_id, request.generation, request.rank)


def installed_local(home: str, **changes: object) -> TestedNode:
    """This machine as a node, its helper installed in `home`."""
    transport = LocalTransport()
    client = NodeClient(transport, INSTALLATION)
    transport.home = client.install(home=home, **changes).home  # type: ignore[arg-type]  # passed on
    return TestedNode(client)


def installed_ssh(server: SshdNode, environment: dict[str, str] | None = None) -> TestedNode:
    """An sshd node with its helper installed."""
    first = NodeClient(SshTransport(server.ssh_node(is_installed=False)), INSTALLATION)
    first.install(home=server.home, environment=environment)
    first.transport.close()
    return TestedNode(NodeClient(SshTransport(server.ssh_node()), INSTALLATION))
