"""The tape: GPUs as rows, time as columns; what ran, and what may go on.

By node for those who see pools, by policy for all others.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse
from django.utils import timezone

from apps.access.isolation import other_tenants_policy_ids
from apps.access.selectors import policies_visible_to, pools_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import time_zone_of
from apps.core.units import MILLI, milli_text
from apps.dashboard.cards.nodes import resumable_parts
from apps.dashboard.cards.tape_geometry import (
    TapeAxis,
    TapePiece,
    TapeRow,
    TapeSection,
    blocks_of,
    contiguous,
    row_scale,
)
from apps.dashboard.cards.tape_query import TapeQuery
from apps.dashboard.cards.tape_reader import TapeReader, TapeTask
from apps.dashboard.cards.time_axis import time_marks
from apps.dashboard.cards.words import NODE_STATES
from apps.dashboard.selectors.tape import (
    HeldStretch,
    attempts_between,
    held_by,
    nodes_of,
    packed,
)
from apps.nodes.models import Device, DeviceState, Node, NodeState
from apps.nodes.selectors import nodes_visible_to
from apps.policies.models import Policy, Pool
from apps.tasks.models import Attempt
from apps.usage.selectors.current_usage import GPU

# A row by policy shows as many GPUs at most.
MOST_GPUS = 64


@dataclass(frozen=True, slots=True)
class Tape:
    """`is_by_node`: rows are nodes in their pools; else policies. `series` are the colours."""

    sections: tuple[TapeSection, ...]
    axis: TapeAxis
    series: tuple[tuple[str, str], ...]
    lines: tuple[TapeTask, ...]
    is_by_node: bool
    is_cut: bool


def load_tape(user: User, wanted: TapeQuery) -> Tape:
    """What the person may see of the time that they ask for, in a fixed number of queries."""
    window, zone = wanted.window(timezone.now()), time_zone_of(user)
    pools = list(pools_visible_to(user))
    seen = list(policies_visible_to(user).values_list("pk", flat=True))
    policies = None
    if not pools:
        policies = seen
    elif hidden := other_tenants_policy_ids(user):
        # Tenants learn nothing of one another, not even when a GPU was held.
        others = Policy.objects.exclude(pk__in=hidden).order_by()
        policies = list(others.values_list("pk", flat=True))
    found = attempts_between(
        window.began,
        min(window.ended, window.now),
        seen=seen,
        policy_ids=policies,
        pools=pools or None,
    )
    reader = TapeReader(user, found, window)
    sections = tuple(_by_node(reader, pools) if pools else _by_policy(reader))
    words = " to ".join(
        f"{at.day} {at:%b %H:%M}"
        for at in (window.began.astimezone(zone), window.ended.astimezone(zone))
    )
    marks = time_marks(window.began, window.ended, zone, most=11, except_near=window.now)
    return Tape(
        sections=sections,
        axis=TapeAxis(marks, window.now_x, words, str(zone)),
        series=reader.series,
        lines=tuple(sorted(reader.lines, key=lambda one: one.began, reverse=True)),
        is_by_node=bool(pools),
        is_cut=found.is_cut,
    )


# --- by node -------------------------------------------------------------------------------------


def _by_node(reader: TapeReader, pools: list[Pool]) -> Iterator[TapeSection]:
    nodes, devices = nodes_of(pools)
    total = sum(map(len, devices.values()))
    linked = set(nodes_visible_to(reader.user).values_list("pk", flat=True))
    held: defaultdict[int, list[HeldStretch]] = defaultdict(list)
    for stretch in held_by(reader.found.attempts, nodes):
        held[stretch.node].append(stretch)
    for pool in pools:
        rows = tuple(
            _node_row(
                reader,
                node,
                devices[node.pk],
                held[node.pk],
                total=total,
                is_linked=node.pk in linked,
            )
            for node in nodes
            if node.pool_id == pool.pk
        )
        if rows:
            yield TapeSection(pool.name, rows)


def _node_row(
    reader: TapeReader,
    node: Node,
    devices: list[Device],
    held: list[HeldStretch],
    *,
    total: int,
    is_linked: bool,
) -> TapeRow:
    scale = row_scale(len(devices), total)
    at = {device.index: number for number, device in enumerate(devices)}
    bad = [at[one.index] for one in devices if one.state != DeviceState.HEALTHY]
    return TapeRow(
        name=node.name,
        detail=_hardware(devices),
        note=_note(node, bad),
        href=reverse("node_detail", args=[node.pk]) if is_linked else "",
        height=round(scale * max(len(devices), 1), 1),
        blocks=blocks_of(_node_pieces(reader, node, held, at), reader.window, scale),
        closed=tuple((number * scale, scale) for number in bad),
    )


def _hardware(devices: list[Device]) -> str:
    models = {device.model for device in devices if device.model}
    word = f"{len(devices)} GPU"
    return f"{word}, {models.pop()}" if len(models) == 1 else word


def _note(node: Node, bad: list[int]) -> str:
    """What is wrong with the node; empty for nothing."""
    if node.state != NodeState.HEALTHY:
        return NODE_STATES[node.state].text
    if bad:
        return f"{len(bad)} GPU unavailable"
    return "Takes no new tasks" if resumable_parts(node) else ""


def _node_pieces(
    reader: TapeReader, node: Node, held: list[HeldStretch], at: Mapping[int, int]
) -> Iterator[TapePiece]:
    attempts = {one.pk: one for one in reader.found.attempts}
    by_attempt: defaultdict[UUID, list[HeldStretch]] = defaultdict(list)
    for stretch in held:
        by_attempt[stretch.attempt].append(stretch)
    offsets = _share_offsets(reader, attempts, held)
    for pk, stretches in by_attempt.items():
        one, total = attempts[pk], sum(stretch.milli for stretch in stretches)
        numbers = contiguous(sorted(stretch.index for stretch in stretches))
        ranges = (str(low) if n == 1 else f"{low} to {low + n - 1}" for low, n in numbers)
        place = f"{node.name} ({', '.join(ranges)})"
        reader.add_line(one, place, total)
        whole = sorted(at[s.index] for s in stretches if s.milli == MILLI and s.index in at)
        for first, count in contiguous(whole):
            offset, amount = first * MILLI, count * MILLI
            yield reader.piece(one, place, offset=offset, amount=amount, total=total)
        for stretch in stretches:
            if stretch.milli < MILLI and stretch.index in at:
                offset = at[stretch.index] * MILLI + offsets[pk, stretch.index]
                yield reader.piece(one, place, offset=offset, amount=stretch.milli, total=total)


def _share_offsets(
    reader: TapeReader, attempts: Mapping[UUID, Attempt], held: list[HeldStretch]
) -> dict[tuple[UUID, int], int]:
    """Where shares of a device are drawn, so that those of the same time do not overlap."""
    shares: defaultdict[int, list[HeldStretch]] = defaultdict(list)
    for stretch in held:
        if stretch.milli < MILLI:
            shares[stretch.index].append(stretch)
    found = {}
    for index, those in shares.items():
        times = [(*reader.times(attempts[one.attempt]), one.milli) for one in those]
        for one, offset in zip(those, packed(times), strict=True):
            found[one.attempt, index] = min(offset, MILLI - one.milli)
    return found


# --- by policy -----------------------------------------------------------------------------------


def _by_policy(reader: TapeReader) -> Iterable[TapeSection]:
    of_policy: defaultdict[int, list[Attempt]] = defaultdict(list)
    for one in reader.found.attempts:
        if one.request.get(GPU, 0):
            of_policy[one.policy_id].append(one)
    rows = [
        _policy_row(reader, policy, name, of_policy[policy])
        for policy, name in sorted(reader.policies.items(), key=lambda one: one[1])
        if of_policy[policy]
    ]
    return [TapeSection("Policies", tuple(rows))] if rows else []


def _policy_row(reader: TapeReader, policy: int, name: str, attempts: list[Attempt]) -> TapeRow:
    amounts = [one.request[GPU] * one.replicas for one in attempts]
    times = [(*reader.times(one), amount) for one, amount in zip(attempts, amounts, strict=True)]
    offsets = packed(times)
    most = max(a + b for a, b in zip(offsets, amounts, strict=True))
    gpus = min(-(-most // MILLI), MOST_GPUS)
    pieces = []
    for one, amount, offset in zip(attempts, amounts, offsets, strict=True):
        reader.add_line(one, name, amount)
        if offset < MOST_GPUS * MILLI:
            pieces.append(reader.piece(one, name, offset=offset, amount=amount, total=amount))
    scale = row_scale(gpus, gpus)
    return TapeRow(
        name=name,
        detail=f"at most {milli_text(most)} GPU at once",
        note=f"First {MOST_GPUS} GPU shown" if most > MOST_GPUS * MILLI else "",
        href=reverse("policy_detail", args=[policy]),
        height=round(gpus * scale, 1),
        blocks=blocks_of(pieces, reader.window, scale),
    )
