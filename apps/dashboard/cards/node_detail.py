"""One node: its devices and who has them, what runs there, and what is not ours."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.accounts.models import User
from apps.core.units import MILLI, amount_text, amounts_text, milli_text
from apps.dashboard.cards.nodes import NodeRow, cell_word, node_row, resumable_parts
from apps.dashboard.cards.words import NODE_STATES, joined, plural
from apps.dashboard.live import Sharing, card, key_id
from apps.execution.connections import pinned_key
from apps.nodes.models import Device, DeviceState, Node
from apps.nodes.selectors import ShareEnforcement, devices_not_replaced, nodes_visible_to
from apps.tasks.models import HeldDevice, Member, Task
from apps.usage.selectors.current_usage import amounts_of, live_attempts, over_quota_tasks


@dataclass(frozen=True, slots=True)
class DeviceView:
    """`cell` as in the strip, `word` says it; `holders` are tasks with their thousandths of it."""

    device: Device
    cell: str
    word: str
    holders: tuple[tuple[Task, int], ...]
    processes: tuple[str, ...]

    @property
    def memory(self) -> str:
        """In the unit of every other amount of memory; empty where it is not reported."""
        mb = self.device.memory_mb
        return amount_text("memory_mb", mb * MILLI) if mb else ""


@dataclass(frozen=True, slots=True)
class NodeMemberRow:
    """One member of a task; `amounts` in a line."""

    task: Task
    policy: str
    member: int
    members: int
    amounts: str
    since: datetime
    is_over_quota: bool


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """`shares` is None where no device could be shared; `key_kind` empty without a host key."""

    row: NodeRow
    devices: tuple[DeviceView, ...]
    member_rows: tuple[NodeMemberRow, ...]
    shares: ShareEnforcement | None
    key_kind: str
    fingerprint: str
    topics: tuple[str, ...]
    announce: str

    @property
    def node(self) -> Node:
        return self.row.node

    @property
    def resume_ends(self) -> str:
        """Everything that *Resume* ends: `the pause and the drain`."""
        return joined(resumable_parts(self.node))

    @property
    def state_sentence(self) -> str:
        """What the server says of the state, with a full stop: a link may follow."""
        words: str = self.node.state_detail
        return words if words.endswith((".", "?", "!")) else f"{words}."

    @property
    def missing(self) -> int:
        return sum(1 for one in self.devices if one.cell == "d")

    @property
    def occupied(self) -> int:
        return sum(1 for one in self.devices if one.cell == "x")


@card("node_detail", Sharing.ROLE)
def load_node_detail(user: User, key: str) -> NodeDetail | None:
    """A node that was not removed, for administrators, in eight queries."""
    node = nodes_visible_to(user).select_related("pool").filter(pk=key_id(key)).first()
    if node is None:
        return None
    attempts = live_attempts()
    over_quota = over_quota_tasks(attempts, amounts_of())
    devices = list(devices_not_replaced().filter(node=node))
    held: defaultdict[int, list[tuple[Task, int]]] = defaultdict(list)
    rows = HeldDevice.objects.filter(released_at__isnull=True, device__node=node)
    for one in rows.select_related("member__attempt__task__owner").order_by("pk"):
        held[one.device_id].append((one.member.attempt.task, one.milli))
    plain = defaultdict(list, {pk: [(m, t.pk) for t, m in some] for pk, some in held.items()})
    member_rows = _member_rows(node, over_quota)
    tasks = len({one.task.pk for one in member_rows})
    row = node_row(node, devices, plain, over_quota, tasks=tasks)
    pinned = pinned_key(node)
    return NodeDetail(
        row=row,
        devices=_devices(node, devices, row, held),
        member_rows=member_rows,
        shares=_shares(node, has_devices=bool(devices)),
        key_kind=pinned.kind if pinned is not None else "",
        fingerprint=pinned.fingerprint if pinned is not None else "",
        topics=("nodes", f"node.{node.pk}", "overview"),
        announce=f"{node.name}: {NODE_STATES[node.state].text}, {plural(row.tasks, 'task')}",
    )


def _devices(
    node: Node,
    devices: list[Device],
    row: NodeRow,
    held: defaultdict[int, list[tuple[Task, int]]],
) -> tuple[DeviceView, ...]:
    foreign: defaultdict[str, list[str]] = defaultdict(list)
    for one in node.report.get("foreign_processes") or ():
        foreign[one["uuid"]].append(
            f"process {one['pid']} with {amount_text('memory_mb', one['memory_mb'] * MILLI)}"
        )
    return tuple(
        DeviceView(
            device=device,
            cell=cell,
            word=cell_word(cell),
            holders=tuple(held[device.pk]),
            processes=tuple(foreign[device.uuid]) if device.state == DeviceState.OCCUPIED else (),
        )
        for device, cell in zip(devices, row.cells, strict=True)
    )


def _member_rows(node: Node, over_quota: frozenset[UUID]) -> tuple[NodeMemberRow, ...]:
    rows = Member.objects.filter(node=node, released_at__isnull=True)
    rows = rows.select_related("attempt__task__owner", "attempt__policy").order_by("pk")
    return tuple(
        NodeMemberRow(
            task=one.attempt.task,
            policy=one.attempt.policy.name,
            member=one.rank + 1,
            members=one.attempt.replicas,
            amounts=amounts_text({key: milli_text(use) for key, use in one.amounts.items()}),
            since=one.started_at or one.attempt.allocated_at,
            is_over_quota=one.attempt.task_id in over_quota,
        )
        for one in rows
    )


def _shares(node: Node, *, has_devices: bool) -> ShareEnforcement | None:
    enforcement: dict[str, Any] | None = node.report.get("enforcement")
    if not has_devices or enforcement is None:
        return None

    def word(method: str) -> str:
        return "accounted" if method == "accounted" else "enforced"

    return ShareEnforcement(
        memory=word(enforcement["memory"]),
        compute=word(enforcement["compute"]),
        methods=(enforcement["memory"],),
        detail=enforcement["detail"],
    )
