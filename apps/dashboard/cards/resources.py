"""The live configuration as a board: pools with their execution order, profiles with routing."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from apps.access.selectors import pools_visible_to, profiles_used_by, queues_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.configuration.selectors import draft_changes
from apps.core.units import UNITS, amount_text, milli
from apps.dashboard.cards.bars import Gauge, UsageBar, parts
from apps.dashboard.live import Sharing, card, topics_of
from apps.dashboard.selectors.current_tasks import CurrentTasks, current_tasks_visible_to
from apps.dashboard.selectors.pools import PoolFacts, pool_facts
from apps.policies.document import DocumentChange
from apps.policies.models import DraftState, LiveState, Pool, PoolLink, Profile, Queue
from apps.usage.selectors.current_usage import GPU
from apps.usage.selectors.waiting_tasks import waiting_by_queue

NAMES = {"cpu": "CPU", "memory_mb": "Memory", "slot": "Slots"}


@dataclass(frozen=True, slots=True)
class Tile:
    """A profile in the execution order of a pool; counts are of this pool and this profile."""

    rank: int
    profile: Profile
    gpu: str
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class KeyMeter:
    """Usage of a resource key other than GPU; `text` such as `416 of 480 CPU`."""

    name: str
    text: str
    bar: UsageBar


@dataclass(frozen=True, slots=True)
class PoolBoard:
    facts: PoolFacts
    gauge: Gauge
    meters: tuple[KeyMeter, ...]
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Port:
    rank: int
    pool_id: int
    name: str
    link: str


@dataclass(frozen=True, slots=True)
class QueueBoard:
    queue: Queue
    waiting: int


@dataclass(frozen=True, slots=True)
class ProfileBoard:
    """`queues` in queuing order."""

    profile: Profile
    gpu: str
    links: tuple[Port, ...]
    queues: tuple[QueueBoard, ...]
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Board:
    """Users without permissions on pools see their profiles, and no pool."""

    pools: tuple[PoolBoard, ...]
    profiles: tuple[ProfileBoard, ...]
    settings: LiveState | None
    is_admin: bool
    topics: tuple[str, ...]
    announce: str = ""


@card("resource_board", Sharing.ADMINS)
def load_board(user: User, _key: str) -> Board:
    """The provisioned configuration, as far as the person may see it."""
    pools = list(pools_visible_to(user))
    current = current_tasks_visible_to(user)
    facts = pool_facts(pools, current)
    profiles = list(profiles_used_by(user))
    links = list(
        PoolLink.objects.filter(
            profile__in=profiles, pool__in=[one.pool.pk for one in facts]
        ).select_related("pool", "profile")
    )
    seen = list(queues_visible_to(user).select_related("policy").order_by("queuing_rank", "pk"))
    # How much other teams run and wait is theirs to know.
    counts = _Counts.of(None if is_admin(user) else seen, current)
    queues: defaultdict[int, list[Queue]] = defaultdict(list)
    for queue in seen:
        queues[queue.profile_id].append(queue)
    return Board(
        pools=tuple(_pool(one, links, counts, current) for one in facts),
        profiles=tuple(
            _profile(one, links, _queue_boards(queues[one.pk], current), counts) for one in profiles
        ),
        settings=LiveState.objects.first(),
        is_admin=is_admin(user),
        topics=("overview", "configuration", *topics_of("pool", [f.pool.pk for f in facts])),
    )


@dataclass(frozen=True, slots=True)
class _Counts:
    """Tasks running per (pool, profile) and profile, and waiting per profile."""

    running_in: defaultdict[tuple[int, int], int]
    running: defaultdict[int, int]
    waiting: defaultdict[int, int]

    @classmethod
    def of(cls, queues: list[Queue] | None, current: CurrentTasks) -> "_Counts":
        """Of these queues; None is all of them."""
        every = Queue.objects.only("profile_id") if queues is None else queues
        profile_of = {queue.pk: queue.profile_id for queue in every}
        counts = cls(defaultdict(int), defaultdict(int), defaultdict(int))
        for one in current.attempts:
            profile = profile_of.get(one.queue_id, 0)
            counts.running_in[one.pool_id, profile] += 1
            counts.running[profile] += 1
        for queue, waiting in current.waiting.items():
            counts.waiting[profile_of.get(queue, 0)] += waiting.count
        return counts


def _queue_boards(queues: Iterable[Queue], current: CurrentTasks) -> tuple[QueueBoard, ...]:
    return tuple(QueueBoard(queue, current.waiting[queue.pk].count) for queue in queues)


def _pool(
    facts: PoolFacts, links: list[PoolLink], counts: _Counts, current: CurrentTasks
) -> PoolBoard:
    here = [link for link in links if link.pool_id == facts.pool.pk]
    here.sort(key=lambda link: (link.execution_rank, link.pk))
    return PoolBoard(
        facts=facts,
        gauge=Gauge.of(
            reserved_usage=facts.usage.reserved,
            over_quota=facts.usage.over_quota,
            usable=facts.usable,
            configured=facts.configured,
        ),
        meters=_meters(facts.pool, current),
        tiles=tuple(
            Tile(
                rank=rank,
                profile=link.profile,
                gpu=link.profile.request.get(GPU, "0"),
                running=counts.running_in[facts.pool.pk, link.profile_id],
                waiting=counts.waiting[link.profile_id],
            )
            for rank, link in enumerate(here, start=1)
        ),
    )


def _meters(pool: Pool, current: CurrentTasks) -> tuple[KeyMeter, ...]:
    """One row per key that the pool counts other than GPU, the built-in ones first."""
    order = list(UNITS)
    keys = sorted(pool.capacity, key=lambda key: (order.index(key) if key in order else 99, key))
    here = [one for one in current.attempts if one.pool_id == pool.pk]
    found = []
    for key in keys:
        if key == GPU:
            continue
        used = sum(one.amounts.get(key, 0) for one in here)
        over_quota = sum(
            one.amounts.get(key, 0) for one in here if one.task_id in current.over_quota
        )
        capacity = max(milli(pool.capacity[key]) - current.elsewhere.get((pool.pk, key), 0), 0)
        name = NAMES.get(key, key)
        text = _of(key, used, capacity)
        pieces = [
            ("res", used - over_quota),
            ("over", over_quota),
            ("free", max(capacity - used, 0)),
        ]
        found.append(KeyMeter(name, text, UsageBar(parts(pieces), None, f"{name}: {text} in use")))
    return tuple(found)


def _of(key: str, used: int, capacity: int) -> str:
    """`416 of 480 CPU`, `512 MB of 16 GB`."""
    some, whole = amount_text(key, used), amount_text(key, capacity)
    amount, _, unit = some.rpartition(" ")
    same = whole.endswith(f" {unit}") or not used
    return f"{amount if same else some} of {whole}"


def _profile(
    profile: Profile,
    links: list[PoolLink],
    queues: tuple[QueueBoard, ...],
    counts: _Counts,
) -> ProfileBoard:
    here = [link for link in links if link.profile_id == profile.pk]
    here.sort(key=lambda link: (link.routing_rank, link.pk))
    return ProfileBoard(
        profile=profile,
        gpu=profile.request.get(GPU, "0"),
        links=tuple(
            Port(rank, link.pool_id, link.pool.name, link.name)
            for rank, link in enumerate(here, start=1)
        ),
        queues=queues,
        running=counts.running[profile.pk],
        waiting=counts.waiting[profile.pk],
    )


@dataclass(frozen=True, slots=True)
class ServedProfile:
    """A profile that a pool serves, in execution order; `choice` is the pool's place in routing."""

    rank: int
    link: PoolLink
    choice: int
    queues: tuple[QueueBoard, ...]


@dataclass(frozen=True, slots=True)
class PoolInfo:
    pool: Pool
    profiles: tuple[ServedProfile, ...]


def load_pool_info(pool: Pool) -> PoolInfo:
    """What a pool serves, for administrators."""
    links = list(
        PoolLink.objects.filter(pool=pool, profile__removed_at__isnull=True)
        .select_related("profile")
        .order_by("execution_rank", "pk")
    )
    profiles = [link.profile_id for link in links]
    every = PoolLink.objects.filter(profile__in=profiles, pool__removed_at__isnull=True)
    routing: defaultdict[int, list[int]] = defaultdict(list)
    for link in every.order_by("routing_rank", "pk"):
        routing[link.profile_id].append(link.pk)
    live = Queue.objects.filter(profile__in=profiles, removed_at__isnull=True)
    queues: defaultdict[int, list[Queue]] = defaultdict(list)
    for queue in live.select_related("policy").order_by("queuing_rank", "pk"):
        queues[queue.profile_id].append(queue)
    waiting = waiting_by_queue(queue.pk for found in queues.values() for queue in found)
    return PoolInfo(
        pool=pool,
        profiles=tuple(
            ServedProfile(
                rank=rank,
                link=link,
                choice=routing[link.profile_id].index(link.pk) + 1,
                queues=tuple(
                    QueueBoard(queue, waiting[queue.pk].count) for queue in queues[link.profile_id]
                ),
            )
            for rank, link in enumerate(links, start=1)
        ),
    )


@dataclass(frozen=True, slots=True)
class ResourceState:
    live: LiveState
    draft: DraftState
    changes: tuple[DocumentChange, ...]
    topics: tuple[str, ...] = ("configuration",)
    announce: str = ""


@card("resource_state", Sharing.ROLE)
def load_resource_state(user: User, _key: str) -> ResourceState | None:
    """For administrators, who alone have the configuration."""
    if not is_admin(user):
        return None
    return ResourceState(
        live=LiveState.objects.get(id=1),
        draft=DraftState.objects.select_related("saved_by").get(id=1),
        changes=tuple(draft_changes()),
    )
