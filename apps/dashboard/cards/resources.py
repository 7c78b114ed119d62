"""The live configuration as a board: pools with their execution order, profiles with routing."""

from collections import defaultdict
from dataclasses import dataclass

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.cards.bars import Gauge
from apps.dashboard.live import Sharing, card, topics_of
from apps.dashboard.selectors.pools import PoolFacts, pool_facts
from apps.dashboard.selectors.use import GPU
from apps.dashboard.selectors.work import Work, work_of_all
from apps.policies.models import LiveState, PoolLink, Profile, Queue
from apps.policies.selectors import pools_visible_to, profiles_visible_to, queues_visible_to


@dataclass(frozen=True, slots=True)
class Tile:
    """A profile in the execution order of a pool; counts are of this pool and this profile."""

    rank: int
    profile: Profile
    gpu: str
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class PoolBoard:
    facts: PoolFacts
    gauge: Gauge
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Port:
    rank: int
    pool_id: int
    name: str
    link: str


@dataclass(frozen=True, slots=True)
class ProfileBoard:
    profile: Profile
    gpu: str
    links: tuple[Port, ...]
    queues: tuple[Queue, ...]
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Board:
    """Users without rights on pools see their profiles, and no pool."""

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
    work = work_of_all()
    facts = pool_facts(pools, work)
    profiles = list(profiles_visible_to(user))
    links = list(
        PoolLink.objects.filter(
            profile__in=profiles, pool__in=[one.pool.pk for one in facts]
        ).select_related("pool", "profile")
    )
    seen = list(queues_visible_to(user).select_related("policy").order_by("queuing_rank", "pk"))
    # How much other teams run and wait is theirs to know.
    counts = _Counts.of(None if is_admin(user) else seen, work)
    queues: defaultdict[int, list[Queue]] = defaultdict(list)
    for queue in seen:
        queues[queue.profile_id].append(queue)
    return Board(
        pools=tuple(_pool(one, links, counts) for one in facts),
        profiles=tuple(_profile(one, links, queues[one.pk], counts) for one in profiles),
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
    def of(cls, queues: list[Queue] | None, work: Work) -> "_Counts":
        """Of these queues; None is all of them."""
        every = Queue.objects.only("profile_id") if queues is None else queues
        profile_of = {queue.pk: queue.profile_id for queue in every}
        counts = cls(defaultdict(int), defaultdict(int), defaultdict(int))
        for one in work.held:
            profile = profile_of.get(one.queue_id, 0)
            counts.running_in[one.pool_id, profile] += 1
            counts.running[profile] += 1
        for queue, waiting in work.waiting.items():
            counts.waiting[profile_of.get(queue, 0)] += waiting.count
        return counts


def _pool(facts: PoolFacts, links: list[PoolLink], counts: _Counts) -> PoolBoard:
    here = [link for link in links if link.pool_id == facts.pool.pk]
    here.sort(key=lambda link: (link.execution_rank, link.pk))
    return PoolBoard(
        facts=facts,
        gauge=Gauge.of(
            reserved_use=facts.use.reserved,
            over=facts.use.over,
            usable=facts.usable,
            configured=facts.configured,
        ),
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


def _profile(
    profile: Profile, links: list[PoolLink], queues: list[Queue], counts: _Counts
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
        queues=tuple(queues),
        running=counts.running[profile.pk],
        waiting=counts.waiting[profile.pk],
    )
