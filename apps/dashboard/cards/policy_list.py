"""The list of policies: a tree, filtered and sorted as the address says."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qs, urlencode

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.cards.bars import Segment, parts
from apps.dashboard.cards.policies import PolicyRow, policy_rows
from apps.dashboard.cards.words import REASONS, UNKNOWN_REASON, Word
from apps.dashboard.live import Sharing, card, topics_of
from apps.dashboard.selectors.use import Use
from apps.dashboard.selectors.waiting import Waiting, summed
from apps.policies.selectors import policies_visible_to

# What the list can be sorted by, largest first. Who stands below a policy stays below it.
SORTS: dict[str, Callable[[PolicyRow], int]] = {
    "waiting": lambda row: row.waiting.count,
    "over": lambda row: row.use.over,
}
MOST_REASONS = 3
MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class PolicyFilter:
    """What the list shows; also the key of its card. Unknown words fall back to the default."""

    name: str = ""
    sort: str = ""

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string such as `name=dev&sort=waiting`."""
        given = {key: values[-1] for key, values in parse_qs(query).items()}
        sort = given.get("sort", "")
        return cls(
            name=given.get("name", "").strip()[:MOST_CHARS], sort=sort if sort in SORTS else ""
        )

    def query(self, **changes: str) -> str:
        """As a query string, with `changes`; what has its default is left out."""
        values = {"name": self.name, "sort": self.sort, **changes}
        return urlencode({key: value for key, value in values.items() if value})


@dataclass(frozen=True, slots=True)
class Sort:
    """The head of a column that can be sorted; `query` sorts by it, or no more."""

    is_on: bool
    query: str


@dataclass(frozen=True, slots=True)
class ReasonPart:
    """How many tasks wait for one reason."""

    word: Word
    count: int


@dataclass(frozen=True, slots=True)
class PolicyList:
    """`rows` are those that match, `use` and the other figures are of all."""

    rows: tuple[PolicyRow, ...]
    wanted: PolicyFilter
    waiting_sort: Sort
    over_sort: Sort
    use: Use
    reserved: int
    unused: int
    waiting: Waiting
    reasons: tuple[ReasonPart, ...]
    reason_bar: tuple[Segment, ...]
    is_admin: bool
    topics: tuple[str, ...]
    announce: str = ""

    @property
    def reason_label(self) -> str:
        """What the bar of reasons says, in words."""
        return ", ".join(f"{one.count} {one.word.text}" for one in self.reasons)


@card("policy_rows", Sharing.ADMINS)
def load_policy_list(user: User, key: str) -> PolicyList:
    """The policies that the person sees, as far as they match."""
    wanted = PolicyFilter.parse(key)
    rows = policy_rows(policies_visible_to(user).select_related("group"))
    top = [row for row in rows if row.depth == 0]
    use = Use()
    for row in top:
        use = use.plus(row.use)
    waiting = summed(row.waiting for row in top)
    reasons = _reasons(waiting)
    return PolicyList(
        rows=tuple(_matching(_sorted(rows, wanted.sort), wanted.name)),
        wanted=wanted,
        waiting_sort=_sort(wanted, "waiting"),
        over_sort=_sort(wanted, "over"),
        use=use,
        reserved=sum(row.reserved for row in top),
        unused=sum(max(row.reserved - row.use.total, 0) for row in top),
        waiting=waiting,
        reasons=reasons,
        reason_bar=parts([(one.word.kind, one.count) for one in reasons]),
        is_admin=is_admin(user),
        topics=("policies", "overview", *topics_of("policy", [row.policy.pk for row in rows])),
    )


def _sort(wanted: PolicyFilter, by: str) -> Sort:
    is_on = wanted.sort == by
    return Sort(is_on=is_on, query=wanted.query(sort="" if is_on else by))


def _sorted(rows: Sequence[PolicyRow], by: str) -> list[PolicyRow]:
    """Siblings by the figure, largest first, and otherwise in their own order."""
    if not by:
        return list(rows)
    shown = {row.policy.pk for row in rows}
    below: dict[int | None, list[PolicyRow]] = defaultdict(list)
    for row in rows:
        parent = row.policy.parent_id
        below[parent if parent in shown else None].append(row)
    found: list[PolicyRow] = []

    def walk(parent: int | None) -> None:
        for row in sorted(below[parent], key=SORTS[by], reverse=True):
            found.append(row)
            walk(row.policy.pk)

    walk(None)
    return found


def _matching(rows: Iterable[PolicyRow], name: str) -> list[PolicyRow]:
    """Those whose name or group contains the word, and what they stand below."""
    every = list(rows)
    word = name.casefold()
    if not word:
        return every
    parents = {row.policy.pk: row.policy.parent_id for row in every}
    kept: set[int | None] = set()
    for row in every:
        if word in row.policy.name.casefold() or word in row.policy.group.name.casefold():
            at: int | None = row.policy.pk
            while at in parents and at not in kept:
                kept.add(at)
                at = parents[at]
    return [row for row in every if row.policy.pk in kept]


def _reasons(waiting: Waiting) -> tuple[ReasonPart, ...]:
    """The most frequent reasons, the rest as one."""
    found = [ReasonPart(REASONS.get(code, UNKNOWN_REASON), count) for code, count in waiting.codes]
    rest = sum(one.count for one in found[MOST_REASONS:])
    more = (ReasonPart(Word("wait", "ellipsis", "other"), rest),) if rest else ()
    return (*found[:MOST_REASONS], *more)
