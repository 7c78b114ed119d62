"""What somebody could start right now: per queue a pass on paper, with many tasks at its end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine import decide
from apps.allocation.engine.plan import Plan
from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.reasons import Code, Reason, to_data
from apps.allocation.engine.sentences import amount_text
from apps.allocation.engine.snapshot import Head, Run, Snapshot
from apps.allocation.engine.snapshot import Policy as PolicyEntry
from apps.allocation.explaining import SUSPENDED, Names, Told, is_suspended, tell
from apps.allocation.loader import load
from apps.allocation.loader.texts import microseconds
from apps.policies.models import Queue
from apps.policies.selectors import may_exceed_limit

# Nobody asks whether it is 64 or 65.
MOST_TASKS = 64
# Thousandths of every key: so much room that only limits hold anything.
ENDLESS = 10**12


@dataclass(frozen=True, slots=True)
class Startable:
    """How many more tasks of a queue one person could start.

    `count` start at once, `after` more once others have stopped for them. `reason` says why the
    next one waits; None where as many as were tried would start. `allowed` is how many the limits
    allow, room or not, and `limit` which of them comes next; empty where none does.
    """

    queue: Queue
    count: int
    after: int
    reason: Told | None
    allowed: int
    limit: str

    @property
    def is_more(self) -> bool:
        """As many as were tried would start: there may be room for more."""
        return self.reason is None


def startable(*, actor: User, queues: Sequence[Queue]) -> tuple[Startable, ...]:
    """How many tasks the next pass would start for `actor`, in each queue for itself.

    Each is asked alone, behind everything that waits there already, with the request and the
    settings that a task has when its owner says nothing. Nothing is stored.
    """
    snapshot = load(now_us=microseconds(timezone.now())).snapshot
    roomy = _roomy(snapshot)
    names = Names.of(actor)
    runs = ((queue, _run(snapshot, queue, actor)) for queue in queues)
    found = tuple(
        _tried(queue, run, snapshot=snapshot, roomy=roomy, names=names)
        for queue, run in runs
        if run is not None
    )
    if is_suspended():
        return tuple(replace(one, count=0, after=0, reason=SUSPENDED) for one in found)
    return found


def _tried(
    queue: Queue, run: Run, *, snapshot: Snapshot, roomy: Snapshot, names: Names
) -> Startable:
    plan = _with(snapshot, run)
    tasks = {head.task for head in run.heads}
    placed = [one for one in plan.placed if one.task in tasks]
    at_once = sum(not one.waits_for for one in placed)
    reason = _reason(plan, len(snapshot.runs))
    pools = next((one.pools for one in snapshot.profiles if one.id == queue.profile_id), ())
    own = replace(names, routing=tuple(int(pool) for pool in pools))
    by_limits = _with(roomy, run)
    return Startable(
        queue=queue,
        count=at_once,
        after=len(placed) - at_once,
        reason=tell(to_data(reason), own, now=timezone.now()) if reason is not None else None,
        allowed=len(by_limits.placed),
        limit=_limit_named(_reason(by_limits, 0), own),
    )


def _run(snapshot: Snapshot, queue: Queue, actor: User) -> Run | None:
    """As many equal tasks of `actor`, last in line; None where the queue was closed just now."""
    entry = next((one for one in snapshot.queues if one.id == queue.pk), None)
    if entry is None:
        return None
    profile = next(one for one in snapshot.profiles if one.id == entry.profile)
    heads = tuple(Head(snapshot.now_us, f"{queue.pk}-{number:03d}") for number in range(MOST_TASKS))
    above = _chain(snapshot, queue.policy_id)
    return Run(
        queue=entry.id,
        request=profile.request,
        count=len(heads),
        heads=heads,
        replicas=profile.replicas,
        user=actor.pk if any(one.user_limit.pairs for one in above) else None,
        can_exceed_limit=actor.pk in may_exceed_limit(queue.policy_id),
    )


def _chain(snapshot: Snapshot, policy_id: int) -> list[PolicyEntry]:
    """The policy and all above it."""
    by_id = {one.id: one for one in snapshot.policies}
    chain = []
    at = by_id.get(policy_id)
    while at is not None:
        chain.append(at)
        at = by_id.get(at.parent) if at.parent is not None else None
    return chain


def _with(snapshot: Snapshot, run: Run) -> Plan:
    return decide(replace(snapshot, runs=(*snapshot.runs, run)))


def _reason(plan: Plan, index: int) -> Reason | None:
    """Why those of the last run wait that do."""
    wait = next((one for one in plan.waiting if one.run == index), None)
    return wait.reasons[0] if wait is not None else None


def _limit_named(reason: Reason | None, names: Names) -> str:
    """The limit that holds the next task; empty where it is something else."""
    if reason is None or not reason.details:
        return ""
    detail = reason.details[0]
    amount = amount_text(detail.key, detail.limit)
    if reason.code is Code.OVER_QUOTA_NOT_ALLOWED:
        return f"the reservation of {amount} of {names.policy(detail.policy)}"
    if reason.code is not Code.LIMIT:
        return ""
    if detail.user is not None:
        return f"the limit of {amount} per person"
    return f"the limit of {amount} of {names.policy(detail.policy)}"


def _roomy(snapshot: Snapshot) -> Snapshot:
    """The same with endless room of everything, and nobody else waiting."""
    keys = {key for one in snapshot.profiles for key in one.request}
    keys |= {key for one in snapshot.pools for key in one.capacity}
    capacity = Quantities.of(dict.fromkeys(keys, ENDLESS))
    return replace(
        snapshot,
        runs=(),
        pools=tuple(
            replace(one, capacity=capacity, nodes=(), has_server=True, is_paused=False)
            for one in snapshot.pools
        ),
        profiles=tuple(replace(one, models=()) for one in snapshot.profiles),
        # Who sits where means nothing in pools without nodes.
        running=tuple(
            replace(group, tasks=tuple(replace(held, members=()) for held in group.tasks))
            for group in snapshot.running
        ),
    )
