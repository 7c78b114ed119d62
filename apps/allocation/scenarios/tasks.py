"""The tasks of a file, as queued groups and running groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from apps.allocation.engine.model.quantities import GPU, WHOLE
from apps.allocation.engine.model.snapshot import (
    DeviceShare,
    Id,
    MemberPlacement,
    PolicySnapshot,
    PoolSnapshot,
    ProfileSnapshot,
    QueuedGroup,
    QueuedTask,
    QueueSnapshot,
    RunningGroup,
    RunningTask,
)
from apps.allocation.scenarios.fields import FieldReader, bad, quantities, read_request


class TaskReader:
    """Single tasks to groups of equal waiting ones and groups of equal running ones."""

    def __init__(
        self,
        profiles: tuple[ProfileSnapshot, ...],
        queues: tuple[QueueSnapshot, ...],
        pools: tuple[PoolSnapshot, ...],
        policies: tuple[PolicySnapshot, ...],
    ) -> None:
        self.profiles = {profile.name: profile for profile in profiles}
        self.queues = {(queue.policy, queue.profile): queue for queue in queues}
        self.pools = {pool.name: pool for pool in pools}
        self.policies = {policy.name for policy in policies}
        self.waiting: dict[tuple[Any, ...], tuple[QueuedGroup, list[QueuedTask]]] = {}
        self.more: dict[tuple[Any, ...], int] = {}
        self.running: dict[tuple[Any, ...], tuple[RunningGroup, list[RunningTask]]] = {}
        self.seen: set[Id] = set()

    def read(
        self, tasks: list[FieldReader]
    ) -> tuple[tuple[QueuedGroup, ...], tuple[RunningGroup, ...]]:
        for task in tasks:
            self._task(task)
            task.done()
        queued_groups = []
        for key, (queued, heads) in self.waiting.items():
            heads.sort(key=lambda head: (head.submitted_us, head.task))
            count = len(heads) + self.more[key]
            queued_groups.append(replace(queued, count=count, heads=tuple(heads)))
        groups = []
        for group, running_tasks in self.running.values():
            running_tasks.sort(key=lambda one: one.task)
            groups.append(replace(group, tasks=tuple(running_tasks)))
        return tuple(queued_groups), tuple(groups)

    def _task(self, reader: FieldReader) -> None:
        task = reader.ident("id")
        if task in self.seen:
            raise bad(reader.at("id"), f"is {task!r} a second time")
        self.seen.add(task)
        for name in ("policy", "profile"):
            known = self.policies if name == "policy" else self.profiles
            if reader.text(name) not in known:
                raise bad(reader.at(name), f"is unknown: {reader.text(name)!r}")
        state = reader.optional_text("state") or "queued"
        if state == "queued":
            self._queued(reader, task)
        elif state in {"running", "stopping"}:
            self._running(reader, task, is_stopping=state == "stopping")
        else:
            raise bad(reader.at("state"), "must be queued, running or stopping")

    def _common(self, reader: FieldReader) -> dict[str, Any]:
        profile = self.profiles[reader.text("profile")]
        return {
            "request": read_request(reader, profile.request),
            "replicas": reader.number("replicas", default=profile.replicas, least=1),
            "priority": reader.number("priority", default=0),
            "is_preemptible": reader.flag("preemptible", default=True),
            "user": reader.optional_text("user"),
            "can_exceed_limit": reader.flag("exceed_limit", default=False),
        }

    def _queued(self, reader: FieldReader, task: Id) -> None:
        queue = self.queues.get((reader.text("policy"), reader.text("profile")))
        if queue is None:
            raise bad(reader.at("profile"), "is not connected by the task's policy")
        common = self._common(reader)
        reader.has("preemptions")
        key = (queue.id, *common.values())
        found = self.waiting.get(key)
        if found is None:
            found = (QueuedGroup(queue=queue.id, count=0, heads=(), **common), [])
            self.waiting[key] = found
        # Equal tasks that wait behind this one, too many to be listed.
        self.more[key] = self.more.get(key, 0) + reader.number("more", default=0, least=0)
        found[1].append(QueuedTask(reader.time_us("submitted"), task))

    def _running(self, reader: FieldReader, task: Id, *, is_stopping: bool) -> None:
        common = self._common(reader)
        pool = reader.text("pool")
        if pool not in self.pools:
            raise bad(reader.at("pool"), f"is unknown: {pool!r}")
        policy, profile = reader.text("policy"), reader.text("profile")
        key = (pool, policy, profile, *common.values(), is_stopping)
        found = self.running.get(key)
        if found is None:
            queue = self.queues.get((policy, profile))
            group = RunningGroup(
                pool=pool,
                policy=policy,
                profile=profile,
                tasks=(),
                queue=queue.id if queue else None,
                is_stopping=is_stopping,
                **common,
            )
            found = (group, [])
            self.running[key] = found
        found[1].append(self._held(reader, task, pool))

    def _held(self, reader: FieldReader, task: Id, pool: str) -> RunningTask:
        stops_for = reader.ident("for") if reader.has("for") else None
        return RunningTask(
            task=task,
            submitted_us=reader.time_us("submitted"),
            started_us=reader.time_us("started"),
            members=self._members(reader, pool),
            checkpointed_us=reader.optional_time_us("checkpointed"),
            preemptions=reader.number("preemptions", default=0, least=0),
            stops_for=stops_for,
            is_leaving=reader.flag("leaving", default=False),
            is_movable=reader.flag("movable", default=True),
        )

    def _members(self, reader: FieldReader, pool: str) -> tuple[MemberPlacement, ...]:
        nodes = reader.texts("nodes")
        if reader.has("node"):
            nodes = (reader.text("node"), *nodes)
        known = {node.name for node in self.pools[pool].nodes}
        for node in nodes:
            if node not in known:
                raise bad(reader.at("node"), f"is not a node of {pool!r}: {node!r}")
        devices = reader.items("devices")
        if devices and len(devices) != len(nodes):
            raise bad(reader.at("devices"), "must have one list per member")
        shares = [_shares(one, reader.at("devices")) for one in devices] or [()] * len(nodes)
        return tuple(map(MemberPlacement, nodes, shares))


def _shares(devices: object, path: str) -> tuple[DeviceShare, ...]:
    """One member's GPUs: a list of [index, share] or of {"index": ..., "share": ...}."""
    found = []
    for device in devices if isinstance(devices, list) else [devices]:
        match device:
            case [int(index), share] | {"index": int(index), "share": share}:
                found.append(DeviceShare(index, quantities({GPU: share}, path).get(GPU)))
            case int(index) if not isinstance(index, bool):
                found.append(DeviceShare(index, WHOLE))
            case _:
                raise bad(path, "must list GPU indices and shares, such as [[0, 0.5]]")
    return tuple(found)
