"""JSON to snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from apps.allocation.engine.model.quantities import (
    NOTHING,
    WHOLE,
)
from apps.allocation.engine.model.snapshot import (
    Id,
    NodeSnapshot,
    OverQuotaMode,
    PolicySnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueueingMode,
    QueueSnapshot,
    SettingsSnapshot,
    Snapshot,
    UsualShape,
)
from apps.allocation.scenarios.fields import FieldReader, bad, quantities, read_request
from apps.allocation.scenarios.tasks import TaskReader
from apps.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Expectation:
    """One acceptable outcome; None: the file does not say."""

    running: Mapping[Id, str]
    queued: frozenset[Id]
    preempted: frozenset[Id]
    moved: Mapping[Id, str] | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A file: its snapshot and, where given, what should come of it."""

    name: str
    snapshot: Snapshot
    expectations: tuple[Expectation, ...] = ()


def read_scenario(text: str) -> Scenario:
    """The scenario of a file's text.

    Raises:
        BadInput: not JSON, or a field that is unknown, missing or wrong, by name.
    """
    try:
        data = json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError as error:
        raise BadInput(f"This is not JSON: {error}.") from None
    reader = FieldReader(data, "")
    name = reader.optional_text("name") or ""
    for remark in ("source", "features", "notes"):
        reader.has(remark)
    expectations: tuple[Expectation, ...] = ()
    if reader.has("expect"):
        expectations = tuple(_expectations(FieldReader(reader.raw("expect"), "expect")))
    return Scenario(name, _snapshot(reader), expectations)


def snapshot_from_json(data: object) -> Snapshot:
    """The snapshot of one JSON object without expectations.

    Raises:
        BadInput: a field that is unknown, missing or wrong, by name.
    """
    return _snapshot(FieldReader(data, ""))


def _expectations(reader: FieldReader) -> Iterable[Expectation]:
    reader.has("notes")
    moved = reader.raw("moved") if reader.has("moved") else None
    yield Expectation(
        running=dict(reader.raw("running")),
        queued=frozenset(reader.items("queued")),
        preempted=frozenset(reader.items("preempted")),
        moved=moved,
    )
    alternatives = reader.objects("alternatives")
    reader.done()
    for alternative in alternatives:
        yield from _expectations(alternative)


def _snapshot(reader: FieldReader) -> Snapshot:
    profiles_data = reader.objects("profiles")
    profile_order = {profile.text("name"): place for place, profile in enumerate(profiles_data)}
    policies_data = reader.objects("policies")
    links = _policy_links(policies_data, profile_order)
    pools_data = reader.objects("pools")
    pools = tuple(_pool(pool, profiles_data) for pool in pools_data)
    profiles = tuple(_profile(one, links, pools_data) for one in profiles_data)
    _unique("pools", [pool.name for pool in pools])
    _unique("profiles", [profile.name for profile in profiles])
    policies = tuple(_policy(one, rank) for rank, one in enumerate(policies_data))
    _unique("policies", [policy.name for policy in policies])
    _check_parents(policies, policies_data)
    queues = tuple(queue for one in policies_data for queue in _queues(one))
    queued_groups, running = TaskReader(profiles, queues, pools, policies).read(
        reader.objects("tasks")
    )
    settings = (
        _settings(FieldReader(reader.raw("settings"), "settings"))
        if reader.has("settings")
        else SettingsSnapshot()
    )
    snapshot = Snapshot(
        settings=settings,
        now_us=reader.time_us("now"),
        pools=pools,
        profiles=profiles,
        policies=policies,
        queues=queues,
        queued_groups=queued_groups,
        running=running,
        usual=tuple(_usual(one) for one in reader.objects("usual")),
    )
    reader.done()
    for one in (*profiles_data, *policies_data, *pools_data):
        one.done()
    return snapshot


def _unique(field: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise bad(field, f"has two of the name {name!r}")
        seen.add(name)


def _settings(reader: FieldReader) -> SettingsSnapshot:
    settings = SettingsSnapshot(
        is_enabled=reader.flag("enabled", default=True),
        queueing=reader.choice("queueing", QueueingMode, QueueingMode.BEST_EFFORT),
        preemption=reader.choice("preemption", PreemptionMode, PreemptionMode.RECLAIM),
        over_quota=reader.choice("over_quota", OverQuotaMode, OverQuotaMode.PRIORITY),
        has_consolidation=reader.flag("consolidation", default=False),
    )
    reader.done()
    return settings


def _policy_links(policies: list[FieldReader], profiles: Mapping[str, int]) -> dict[str, list[str]]:
    """By profile, the policies that connect it, in the order of `policies`."""
    links: dict[str, list[str]] = {name: [] for name in profiles}
    for policy in policies:
        for profile in policy.texts("profiles"):
            if profile not in links:
                raise bad(policy.at("profiles"), f"names an unknown profile {profile!r}")
            links[profile].append(policy.text("name"))
    return links


def _pool(reader: FieldReader, profiles: list[FieldReader]) -> PoolSnapshot:
    name = reader.text("name")
    known = {profile.text("name") for profile in profiles}
    listed = reader.texts("profiles")
    if not reader.has("profiles"):
        listed = tuple(one.text("name") for one in profiles if name in one.texts("pools"))
    for profile in listed:
        if profile not in known:
            raise bad(reader.at("profiles"), f"names an unknown profile {profile!r}")
    return PoolSnapshot(
        id=name,
        name=name,
        capacity=reader.amounts("capacity"),
        profiles=listed,
        nodes=tuple(_node(one) for one in reader.objects("nodes")),
        has_backfill=reader.flag("backfill", default=True),
        is_paused=reader.flag("paused", default=False),
        has_server=reader.flag("has_server", default=True),
        preemption=reader.choice("preemption", PreemptionMode, None),
    )


def _node(reader: FieldReader) -> NodeSnapshot:
    name = reader.text("name")
    indices = None
    if reader.has("gpu_indices"):
        indices = tuple(int(one) for one in reader.items("gpu_indices"))
    node = NodeSnapshot(
        id=name,
        name=name,
        capacity=reader.amounts("capacity"),
        model=reader.optional_text("model"),
        gpu_indices=indices,
        unavailable_gpus=tuple(int(one) for one in reader.items("unavailable_gpus")),
        is_schedulable=reader.flag("schedulable", default=True),
    )
    reader.done()
    return node


def _profile(
    reader: FieldReader, links: Mapping[str, list[str]], pools: list[FieldReader]
) -> ProfileSnapshot:
    name = reader.text("name")
    known = [pool.text("name") for pool in pools]
    listed = reader.texts("pools")
    if not reader.has("pools"):
        listed = tuple(pool.text("name") for pool in pools if name in pool.texts("profiles"))
    for pool in listed:
        if pool not in known:
            raise bad(reader.at("pools"), f"names an unknown pool {pool!r}")
    policies = tuple(links[name])
    if reader.has("policies"):
        own = reader.texts("policies")
        policies = (*own, *(policy for policy in policies if policy not in own))
    return ProfileSnapshot(
        id=name,
        name=name,
        request=read_request(reader, NOTHING),
        pools=listed,
        policies=policies,
        replicas=reader.number("replicas", default=1, least=1),
        models=reader.texts("models"),
    )


def _policy(reader: FieldReader, rank: int) -> PolicySnapshot:
    return PolicySnapshot(
        id=reader.text("name"),
        name=reader.text("name"),
        rank=rank,
        parent=reader.optional_text("parent"),
        reserved=reader.amounts("reserved"),
        limit=reader.amounts("limit"),
        user_limit=reader.amounts("user_limit"),
        weight_milli=_weight(reader),
        queueing=_strict(reader),
        is_paused=reader.flag("paused", default=False),
        is_spent=reader.flag("spent", default=False),
        is_removed=reader.flag("removed", default=False),
    )


def _weight(reader: FieldReader) -> int:
    if not reader.has("weight"):
        return WHOLE
    return quantities({"weight": reader.raw("weight")}, reader.path).get("weight")


def _check_parents(policies: tuple[PolicySnapshot, ...], readers: list[FieldReader]) -> None:
    """Parents exist and lead to a top.

    Raises:
        BadInput: naming the policy's `parent`.
    """
    parents = {policy.id: policy.parent for policy in policies}
    for policy, reader in zip(policies, readers, strict=True):
        seen = {policy.id}
        at = policy.parent
        while at is not None:
            if at not in parents:
                raise bad(reader.at("parent"), f"is unknown: {at!r}")
            if at in seen:
                raise bad(reader.at("parent"), "leads back to the policy itself")
            seen.add(at)
            at = parents[at]


def _strict(reader: FieldReader) -> QueueingMode | None:
    if not reader.has("strict"):
        return None
    return QueueingMode.STRICT if reader.flag("strict", default=False) else QueueingMode.BEST_EFFORT


def _queues(policy: FieldReader) -> Iterable[QueueSnapshot]:
    name = policy.text("name")
    settings: dict[str, Any] = {}
    if policy.has("queues"):
        settings = dict(FieldReader(policy.raw("queues"), policy.at("queues")).data)
    for profile in policy.texts("profiles"):
        reader = FieldReader(settings.pop(profile, {}), f"{policy.at('queues')}.{profile}")
        yield QueueSnapshot(
            id=queue_name(name, profile),
            policy=name,
            profile=profile,
            allows_over_quota=reader.flag("allow_over_quota", default=True),
            is_paused=reader.flag("paused", default=False),
            min_runtime_s=reader.number("min_runtime", default=0, least=0),
            max_preemptions=reader.optional_number("max_preemptions"),
        )
        reader.done()
    for unknown in sorted(settings):
        raise bad(policy.at("queues"), f"names {unknown!r}, which the policy does not connect")


def queue_name(policy: str, profile: str) -> str:
    return f"{policy}/{profile}"


def _usual(reader: FieldReader) -> UsualShape:
    usual = UsualShape(
        request=read_request(reader, NOTHING),
        frequency=reader.number("frequency", default=1, least=0),
        replicas=reader.number("replicas", default=1, least=1),
        models=reader.texts("models"),
        pool=reader.optional_text("pool"),
    )
    reader.done()
    return usual
