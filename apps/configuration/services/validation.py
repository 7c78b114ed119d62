"""Checks a document: its errors, and warnings for administrators before provisioning."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from django.db.models import Count

from apps.configuration.selectors import DRAFT, live_document
from apps.configuration.services.rows import document_with_keys
from apps.core.errors import Conflict
from apps.core.units import milli, milli_text, quantities_milli, unit_of
from apps.nodes.models import Node, NodeState, Volume
from apps.policies.document import Document, PoolEntry, ProfileEntry
from apps.policies.models import Policy, PolicyAmount, Pool, Profile, Queue
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task

Amounts = Mapping[str, int]
GPU = "gpu"
# A pool that does not list these does not count them; any other key has no capacity there.
UNCOUNTED = frozenset({"cpu", "memory_mb", "slot"})


@dataclass(frozen=True, slots=True)
class DocumentFinding:
    """One sentence about one place of the document; errors block provisioning."""

    is_error: bool
    path: str
    code: str
    detail: str


def _error(path: str, code: str, detail: str) -> DocumentFinding:
    return DocumentFinding(is_error=True, path=path, code=code, detail=detail)


def _warning(path: str, code: str, detail: str) -> DocumentFinding:
    return DocumentFinding(is_error=False, path=path, code=code, detail=detail)


@dataclass(slots=True)
class LiveFacts:
    """What the database knows in addition to the document; amounts in thousandths."""

    policies: dict[int, Policy] = field(default_factory=dict)
    reserved: dict[int, Amounts] = field(default_factory=dict)
    limits: dict[int, Amounts] = field(default_factory=dict)
    queues: dict[str, list[Queue]] = field(default_factory=dict)
    nodes: dict[str, list[Node]] = field(default_factory=dict)
    volumes: frozenset[str] = frozenset()

    def ancestry(self, policy_id: int | None) -> Iterator[int]:
        """The policy and its ancestors, from the bottom up."""
        while policy_id is not None and policy_id in self.policies:
            yield policy_id
            policy_id = self.policies[policy_id].parent_id


def document_check(document: Document) -> list[DocumentFinding]:
    """Errors first, then warnings, each in the order of the document. Eight to ten queries.

    Entries without a key are the objects that they would be written to in the draft.
    """
    document = document_with_keys(DRAFT, document)
    facts = _facts()
    found = [
        *_levels(document),
        *_capacities(document),
        *_links(document),
        *_dedication(document, facts),
        *_volumes(document, facts),
        *_above_limits(document, facts),
        *_reservations(document, facts),
        *_nodes(document, facts),
        *_removals(document),
    ]
    return sorted(found, key=lambda finding: not finding.is_error)


def reservation_warnings() -> tuple[str, ...]:
    """Sentences on live reservations beyond the capacity that they can reach."""
    return tuple(one.detail for one in _reservations(live_document(), _facts()))


def document_errors_refuse(findings: Iterable[DocumentFinding]) -> None:
    """Refuse a document with errors.

    Raises:
        Conflict: with a sentence per path.
    """
    errors = {finding.path: finding.detail for finding in findings if finding.is_error}
    if errors:
        raise Conflict("The configuration has errors. " + " ".join(errors.values()), fields=errors)


def short_keys(request: Amounts, replicas: int, capacity: Amounts) -> list[str]:
    """Keys in which `replicas` members ask for more than `capacity`."""
    return [
        key
        for key, amount in sorted(request.items())
        if amount and amount * replicas > capacity.get(key, 2**62 if key in UNCOUNTED else 0)
    ]


def _facts() -> LiveFacts:
    facts = LiveFacts(volumes=frozenset(_names(Volume.objects.filter(removed_at__isnull=True))))
    live = Policy.objects.filter(removed_at__isnull=True)
    facts.policies = {policy.pk: policy for policy in live}
    reserved: dict[int, dict[str, int]] = defaultdict(dict)
    limits: dict[int, dict[str, int]] = defaultdict(dict)
    for amount in PolicyAmount.objects.filter(policy__in=facts.policies, pool__isnull=True):
        if amount.reserved_milli is not None:
            reserved[amount.policy_id][amount.key] = amount.reserved_milli
        if amount.limit_milli is not None:
            limits[amount.policy_id][amount.key] = amount.limit_milli
    facts.reserved, facts.limits = dict(reserved), dict(limits)
    queues = defaultdict(list)
    connected = Queue.objects.filter(removed_at__isnull=True).select_related("profile")
    for queue in connected.order_by("queuing_rank", "id"):
        queues[str(queue.profile.key)].append(queue)
    facts.queues = queues
    nodes = defaultdict(list)
    serving = Node.objects.filter(removed_at__isnull=True, pool__isnull=False)
    for node in serving.select_related("pool"):
        if node.pool is not None:
            nodes[str(node.pool.key)].append(node)
    facts.nodes = nodes
    return facts


def _names(rows: Iterable[Volume]) -> list[str]:
    return [row.name for row in rows]


# --- errors ----------------------------------------------------------------------------------


def _capacities(document: Document) -> Iterator[DocumentFinding]:
    for index, pool in enumerate(document.pools):
        text = pool.capacity.get(GPU)
        if text is not None and milli(text) % 1000:
            detail = f"Pool {pool.name!r} counts {text} GPU: count whole GPUs, profiles share them."
            yield _error(f"pools[{index}].capacity.{GPU}", "fractional_gpu", detail)


def _links(document: Document) -> Iterator[DocumentFinding]:
    pools = {pool.name: pool for pool in document.pools}
    for index, profile in enumerate(document.profiles):
        path = f"profiles[{index}]"
        if not profile.pools:
            detail = f"Profile {profile.name!r} is linked to no pool: link one."
            yield _error(f"{path}.pools", "unlinked", detail)
            continue
        yield from _size(profile, [pools[link.pool] for link in profile.pools], path)
        names: set[str] = set()
        for place, link in enumerate(profile.pools):
            if link.name.lower() in names:
                detail = f"Profile {profile.name!r} has two links named {link.name!r}."
                yield _error(f"{path}.pools[{place}].name", "duplicate_link_name", detail)
            names.add(link.name.lower())


def _size(
    profile: ProfileEntry, pools: Iterable[PoolEntry], path: str
) -> Iterator[DocumentFinding]:
    request = quantities_milli(profile.request)
    if not any(request.values()):
        detail = f"Profile {profile.name!r} asks for nothing: give it a request."
        yield _error(f"{path}.request", "empty_request", detail)
        return
    shorts = [
        (pool, short_keys(request, profile.replicas, quantities_milli(pool.capacity)))
        for pool in pools
    ]
    if all(short for _, short in shorts):
        numbers = "; ".join(
            f"{pool.name!r} has {pool.capacity.get(short[0], '0')} {unit_of(short[0])}"
            for pool, short in shorts
        )
        key = shorts[0][1][0]
        wanted = milli_text(request[key] * profile.replicas)
        detail = (
            f"Profile {profile.name!r} takes {wanted} {unit_of(key)}, more than any pool "
            f"it links: {numbers}."
        )
        yield _error(f"{path}.request.{key}", "never_fits", detail)


def _dedication(document: Document, facts: LiveFacts) -> Iterator[DocumentFinding]:
    by_name = {policy.name.lower(): policy for policy in facts.policies.values()}
    profiles = {profile.name: profile for profile in document.profiles}
    for index, pool in enumerate(document.pools):
        if pool.dedicated_to is None:
            continue
        path, owner = f"pools[{index}].dedicated_to", by_name.get(pool.dedicated_to.lower())
        if owner is None:
            detail = f"Pool {pool.name!r} is dedicated to {pool.dedicated_to!r}, which is gone."
            yield _error(path, "no_policy", detail)
            continue
        others = sorted(
            queue.name
            for name in pool.profiles
            for queue in facts.queues.get(profiles[name].key, [])
            if owner.pk not in facts.ancestry(queue.policy_id)
        )
        if others:
            detail = (
                f"Pool {pool.name!r} is dedicated to {owner.name!r}, but its links admit the "
                f"queues {', '.join(others)}."
            )
            yield _error(path, "not_dedicated", detail)


# --- warnings --------------------------------------------------------------------------------


def _volumes(document: Document, facts: LiveFacts) -> Iterator[DocumentFinding]:
    for index, profile in enumerate(document.profiles):
        for place, name in enumerate(profile.volumes):
            if name not in facts.volumes:
                detail = f"Profile {profile.name!r} names volume {name!r}, which is not there."
                yield _warning(f"profiles[{index}].volumes[{place}]", "no_volume", detail)


def _above_limits(document: Document, facts: LiveFacts) -> Iterator[DocumentFinding]:
    """Queues whose tasks could never run, because one of them is above a limit."""
    for index, profile in enumerate(document.profiles):
        request = quantities_milli(profile.request)
        for queue in facts.queues.get(profile.key, []):
            for policy_id in facts.ancestry(queue.policy_id):
                limit = facts.limits.get(policy_id, {})
                over = [k for k, v in request.items() if v * profile.replicas > limit.get(k, 2**62)]
                if over:
                    detail = (
                        f"Tasks of queue {queue.name!r} could never run: {profile.name!r} takes "
                        f"more {unit_of(over[0])} than the limit {milli_text(limit[over[0]])} of "
                        f"policy {facts.policies[policy_id].name!r}."
                    )
                    yield _warning(f"profiles[{index}].request.{over[0]}", "above_limit", detail)


def _reservations(document: Document, facts: LiveFacts) -> Iterator[DocumentFinding]:
    """Reservations beyond the capacity that those who hold them can reach together.

    Policies that reach a pool in common compete for it, directly or through a third: each such
    set is counted together, so that free capacity of one set does not hide what another lacks.
    """
    reach: dict[int, set[str]] = defaultdict(set)
    for profile in document.profiles:
        for queue in facts.queues.get(profile.key, []):
            top = list(facts.ancestry(queue.policy_id))[-1:]
            for policy_id in top:
                reach[policy_id] |= {link.pool for link in profile.pools}
    capacity = {pool.name: quantities_milli(pool.capacity) for pool in document.pools}
    for members, pools in _connected_sets(reach):
        reserved = {policy_id: _total_reserved(policy_id, facts) for policy_id in members}
        for key in sorted({key for amounts in reserved.values() for key in amounts}):
            if key in UNCOUNTED and any(key not in capacity[pool] for pool in pools):
                continue
            holders = {
                facts.policies[pk].name: amounts[key]
                for pk, amounts in reserved.items()
                if amounts.get(key)
            }
            available = sum(capacity[pool].get(key, 0) for pool in pools)
            if sum(holders.values()) > available:
                detail = _beyond_capacity(holders, key, available)
                yield _warning("pools", "reserved_beyond_capacity", detail)


def _beyond_capacity(holders: Mapping[str, int], key: str, available: int) -> str:
    reserved = f"{milli_text(sum(holders.values()))} {unit_of(key)}"
    capacity = milli_text(available)
    if len(holders) == 1:
        (name,) = holders
        return f"{name!r} reserves {reserved}; the pools that it reaches have {capacity}."
    names = ", ".join(f"{name!r} ({milli_text(holders[name])})" for name in sorted(holders))
    return f"{names} reserve {reserved} together; the pools that they reach have {capacity}."


def _connected_sets(reach: Mapping[int, set[str]]) -> list[tuple[list[int], set[str]]]:
    """Policies in sets that share no pool with one another."""
    groups: list[tuple[list[int], set[str]]] = []
    for policy_id, pools in sorted(reach.items()):
        members, union = [policy_id], set(pools)
        separate = []
        for group in groups:
            if group[1] & union:
                members, union = group[0] + members, group[1] | union
            else:
                separate.append(group)
        groups = [*separate, (members, union)]
    return groups


def _total_reserved(policy_id: int, facts: LiveFacts) -> Amounts:
    """The own reservation, and for keys that it does not set the sum of the children's."""
    total: dict[str, int] = defaultdict(int)
    for child in facts.policies.values():
        if child.parent_id == policy_id:
            for key, amount in _total_reserved(child.pk, facts).items():
                total[key] += amount
    return {**total, **facts.reserved.get(policy_id, {})}


def _levels(document: Document) -> Iterator[DocumentFinding]:
    """Warn about ranks with fair shares, which order over-quota work by use, not by rank."""
    if document.settings.over_quota != "fair_share":
        return
    levels: list[tuple[str, str]] = [("settings.preemption", document.settings.preemption)]
    levels += [
        (f"pools[{index}].preemption", pool.preemption) for index, pool in enumerate(document.pools)
    ]
    for path, level in levels:
        if level == "rank":
            detail = "With fair shares, the level 'rank' preempts no more than 'priority' does."
            yield _warning(path, "rank_with_fair_share", detail)


def _nodes(document: Document, facts: LiveFacts) -> Iterator[DocumentFinding]:
    for index, pool in enumerate(document.pools):
        nodes = facts.nodes.get(pool.key, [])
        if not nodes:
            detail = f"No node serves pool {pool.name!r}: the pool admits nothing."
            yield _warning(f"pools[{index}]", "no_server", detail)
            continue
        healthy = [node for node in nodes if node.state == NodeState.HEALTHY]
        for key, text in pool.capacity.items():
            reported = [milli(node.capacity[key]) for node in healthy if key in node.capacity]
            if reported and sum(reported) != milli(text):
                detail = (
                    f"Pool {pool.name!r} is set to {text} {unit_of(key)}; its healthy nodes have "
                    f"{milli_text(sum(reported))}. The smaller counts."
                )
                yield _warning(f"pools[{index}].capacity.{key}", "drift", detail)


def _removals(document: Document) -> Iterator[DocumentFinding]:
    """Warn about what provisioning would close, by name."""
    keys = {pool.key for pool in document.pools}
    for pool in Pool.objects.filter(removed_at__isnull=True):
        if str(pool.key) not in keys:
            detail = f"Provisioning removes pool {pool.name!r}; what runs there ends by itself."
            yield _warning("pools", "removes_pool", detail)
    keys = {profile.key for profile in document.profiles}
    gone = [p for p in Profile.objects.filter(removed_at__isnull=True) if str(p.key) not in keys]
    if not gone:
        return
    closing: dict[int, list[str]] = defaultdict(list)
    for queue in Queue.objects.filter(profile__in=gone, removed_at__isnull=True):
        closing[queue.profile_id].append(queue.name)
    waiting: dict[int, int] = dict(
        Task.objects.filter(queue__profile__in=gone, state=TaskState.QUEUED)
        .values_list("queue__profile")
        .annotate(count=Count("pk"))
    )
    for profile in gone:
        names = ", ".join(closing[profile.pk]) or "none"
        detail = (
            f"Provisioning removes profile {profile.name!r} and closes its queues: {names}. "
            f"{waiting.get(profile.pk, 0)} waiting tasks become drafts."
        )
        yield _warning("profiles", "removes_profile", detail)
