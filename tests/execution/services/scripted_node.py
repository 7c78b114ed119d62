"""A node with scripted answers, and launches to it."""

from collections.abc import Callable
from typing import Any

import msgspec

from apps.execution.client import NodeClient
from apps.execution.leases import NodeClock
from apps.execution.services.member_launch import member_launch, member_launch_continue
from apps.execution.transport.base import TransportError
from apps.tasks.models import Attempt, Task

Answer = dict[str, object] | TransportError | Callable[[], dict[str, object]]


class ScriptedNode:
    """A transport with a node behind it that gives the next answer of a list."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[dict[str, object]] = []

    def exchange(self, request: bytes, *, timeout_s: float) -> bytes:
        self.requests.append(msgspec.json.decode(request))
        answer = self.answers.pop(0)
        if isinstance(answer, TransportError):
            raise answer
        if callable(answer):
            answer = answer()
        clocks = {"protocol": 1, "helper": "1", "boot_id": "boot", "uptime_s": 5.0, "wall_s": 5.0}
        return msgspec.json.encode(clocks | answer)

    def install(self, program: bytes, *, timeout_s: float) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        """There is no connection."""

    def verbs(self) -> list[object]:
        return [request["verb"] for request in self.requests]

    def specs(self) -> list[Any]:
        """What each launch asked it to run."""
        return [request["spec"] for request in self.requests if request["verb"] == "launch"]


def done(**answer: object) -> dict[str, object]:
    return {"answer": answer}


def refusal(code: str, detail: str = "its words") -> dict[str, object]:
    return {"refusal": {"code": code, "detail": detail}}


def launch(attempt: Attempt, node: ScriptedNode, client: NodeClient | None = None) -> None:
    """Launch it, and ask after its image until the node has it or does not get it."""
    client = client or NodeClient(node, "ours")
    clock = NodeClock("boot", 100.0, read_at=0.0)
    member_id = attempt.members.get().pk
    start = member_launch(member_id=member_id, client=client, clock=clock, token="t")
    while start is not None:
        start = member_launch_continue(start, client=client, clock=clock)


def states_of(attempt: Attempt) -> tuple[str, str, str]:
    """States of member, attempt and task."""
    attempt.refresh_from_db()
    task = Task.objects.get(pk=attempt.task_id)
    return str(attempt.members.get().state), str(attempt.state), str(task.state)
