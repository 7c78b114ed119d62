"""Why a task waits, as a person reads it: names only of what that person may see."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.reasons import Code, Detail, from_data
from apps.allocation.engine.sentences import amount_text, sentence
from apps.core.units import MILLI, milli_text
from apps.dashboard.cards.words import REASONS, UNKNOWN_REASON, Word, ordinal, plural
from apps.dashboard.selectors.pools import simulated_pools
from apps.policies.selectors import policies_visible_to, pools_visible_to, queues_visible_to
from apps.tasks.models import Task

MOST_CELLS = 16
_PLACES = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, slots=True)
class PoolFit:
    """What a pool of the routing order has of what is missing; a cell is one GPU, there or not."""

    rank: int
    name: str
    needed: str
    free: str
    cells: tuple[bool, ...]
    label: str
    is_simulated: bool


@dataclass(frozen=True, slots=True)
class ReasonView:
    """`verdict` is the sentence, `numbers` a line below it, `helps` what would help."""

    word: Word
    code: str
    verdict: str
    numbers: str = ""
    fits: tuple[PoolFit, ...] = ()
    helps: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Names:
    """Names of pools, policies and queues, as far as the person may see them.

    `routing` is the order of pools of the task's profile, for "your second pool". Ids arrive as
    numbers, or as texts of numbers.
    """

    pools: Mapping[int, str]
    policies: Mapping[int, str]
    queues: Mapping[int, str]
    routing: tuple[int, ...] = ()
    simulated: frozenset[int] = frozenset()

    @classmethod
    def of(cls, user: User, task: Task) -> "Names":
        links = task.queue.profile.links.order_by("routing_rank", "pk") if task.queue else []
        return cls(
            pools=dict(pools_visible_to(user).values_list("pk", "name")),
            policies=dict(policies_visible_to(user).values_list("pk", "name")),
            queues=dict(queues_visible_to(user).values_list("pk", "name")),
            routing=tuple(link.pool_id for link in links),
            simulated=simulated_pools(),
        )

    def pool(self, id_: object) -> str:
        known = self.pools.get(_number(id_))
        if known:
            return known
        if _number(id_) not in self.routing:
            return "another pool"
        place = self.routing.index(_number(id_))
        return f"your {_PLACES[place] if place < len(_PLACES) else ordinal(place + 1)} pool"

    def policy(self, id_: object) -> str:
        return self.policies.get(_number(id_), "another team")

    def queue(self, id_: object) -> str:
        return self.queues.get(_number(id_), "another queue")

    def task(self, _id: object) -> str:
        return "an earlier task"

    def rank(self, id_: object) -> int:
        """Place in the routing order, from 1."""
        return self.routing.index(_number(id_)) + 1 if _number(id_) in self.routing else 1


def explain(data: Mapping[str, Any], names: Names, *, place: int | None) -> ReasonView:
    """The reasons that a pass stored for a run.

    Args:
        data: `{"reasons": [{"code", "details"}], ...}` of `apps.tasks.models.Run.reason`.
        place: place in the queue, for a task that is not the first of its kind.
    """
    reasons = [from_data(one) for one in data.get("reasons") or ()]
    if not reasons:
        return ReasonView(UNKNOWN_REASON, "", "The next pass looks at it within seconds.")
    first = reasons[0]
    now_us = int(timezone.now().timestamp() * 1_000_000)
    said = sentence(first, names, now_us=now_us)
    fits = tuple(_fit(one, names) for one in first.details if first.code is Code.CAPACITY)
    return ReasonView(
        word=REASONS.get(first.code, UNKNOWN_REASON),
        code=first.code.value,
        verdict=said.text,
        numbers=_ahead(place),
        fits=fits,
        helps=(said.help,),
        others=tuple(str(REASONS[one.code].text) for one in reasons[1:]),
    )


def _ahead(place: int | None) -> str:
    """Equal tasks wait for the same thing, one after the other."""
    if place is None or place < 2:
        return ""
    come = "come" if place > 2 else "comes"
    return f"It is the {ordinal(place)} in its queue: {plural(place - 1, 'task')} {come} first."


def _fit(detail: Detail, names: Names) -> PoolFit:
    needed, free = detail.needed or 0, detail.free or 0
    best = detail.largest if detail.largest is not None else free
    whole = -(-needed // MILLI)
    there = min(best // MILLI, whole)
    is_drawn = detail.key == "gpu" and 0 < whole <= MOST_CELLS
    return PoolFit(
        rank=names.rank(detail.pool),
        name=names.pool(detail.pool),
        needed=amount_text(detail.key, needed),
        free=amount_text(detail.key, free),
        cells=tuple(at < there for at in range(whole)) if is_drawn else (),
        label=f"{milli_text(best)} of {amount_text(detail.key, needed)}",
        is_simulated=_number(detail.pool) in names.simulated,
    )


def _number(id_: object) -> int:
    return int(str(id_)) if str(id_).isdecimal() else 0
