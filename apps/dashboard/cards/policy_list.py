"""The list of policies: a tree, filtered and sorted as the address says."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Self
from urllib.parse import parse_qs, urlencode

from django.utils import timezone

from apps.access.selectors import policies_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.cards.bars import Segment, parts
from apps.dashboard.cards.policies import PolicyRow, policy_rows
from apps.dashboard.cards.sparklines import span_words
from apps.dashboard.cards.words import REASONS, UNKNOWN_REASON, Word
from apps.dashboard.live import Sharing, card, topics_of
from apps.usage.selectors.current_usage import Usage
from apps.usage.selectors.usage_history import HOURS, HistoryScope, history_start
from apps.usage.selectors.waiting_tasks import WaitingTasks, waiting_sum

# Sort columns of the list, largest first. Child policies stay below their parent.
SORTS: dict[str, Callable[[PolicyRow], int]] = {
    "waiting": lambda row: row.waiting.count,
    "over": lambda row: row.usage.over_quota,
}
# Filters of the list, and the labels of their buttons.
FILTERS: dict[str, tuple[str, Callable[[PolicyRow], bool]]] = {
    "waiting": ("With waiting", lambda row: row.waiting.count > 0),
    "over": ("Beyond own reservation", lambda row: row.usage.over_quota > 0),
    "limit": ("At limit", lambda row: row.free == 0),
}
MOST_REASONS = 3
MOST_CHARS = 200
FLAT = "flat"


@dataclass(frozen=True, slots=True)
class PolicyFilter:
    """What the list shows; also the key of its card. Unknown words fall back to the default."""

    name: str = ""
    sort: str = ""
    only: str = ""
    view: str = ""

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string such as `name=dev&sort=waiting`."""
        given = {key: values[-1] for key, values in parse_qs(query).items()}
        sort, only = given.get("sort", ""), given.get("only", "")
        return cls(
            name=given.get("name", "").strip()[:MOST_CHARS],
            sort=sort if sort in SORTS else "",
            only=only if only in FILTERS else "",
            view=FLAT if given.get("view") == FLAT else "",
        )

    def query(self, **changes: str) -> str:
        """As a query string, with `changes`; what has its default is left out."""
        values = {**asdict(self), **changes}
        return urlencode({key: value for key, value in values.items() if value})


@dataclass(frozen=True, slots=True)
class Sort:
    """The head of a column that can be sorted; `query` sorts by it, or no more."""

    is_on: bool
    query: str


@dataclass(frozen=True, slots=True)
class FilterButton:
    """A button that shows only some of the policies, `count` of them; `query` is its address."""

    label: str
    count: int
    is_on: bool
    query: str


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many tasks wait for one reason."""

    word: Word
    count: int


@dataclass(frozen=True, slots=True)
class PolicyList:
    """`rows` are those that match, `usage` and the other figures are of all."""

    rows: tuple[PolicyRow, ...]
    wanted: PolicyFilter
    waiting_sort: Sort
    over_sort: Sort
    choices: tuple[FilterButton, ...]
    tree_query: str
    flat_query: str
    usage: Usage
    reserved: int
    unused: int
    waiting: WaitingTasks
    reasons: tuple[ReasonCount, ...]
    reason_bar: tuple[Segment, ...]
    span: str
    is_admin: bool
    topics: tuple[str, ...]
    announce: str = ""

    @property
    def reason_label(self) -> str:
        """The text alternative of the bar of reasons."""
        return ", ".join(f"{one.count} {str(one.word.text).lower()}" for one in self.reasons)


@card("policy_rows", Sharing.ADMINS)
def load_policy_list(user: User, key: str) -> PolicyList:
    """The policies that the person sees, as far as they match."""
    wanted = PolicyFilter.parse(key)
    rows = policy_rows(policies_visible_to(user).select_related("group"))
    top = [row for row in rows if row.depth == 0]
    usage = Usage()
    for row in top:
        usage = usage.plus(row.usage)
    waiting = waiting_sum(row.waiting for row in top)
    reasons, now = _reasons(waiting), timezone.now()
    scope = HistoryScope([row.policy.pk for row in rows])
    began = history_start(scope, until=now, hours=HOURS)
    return PolicyList(
        rows=tuple(_shown(rows, wanted)),
        wanted=wanted,
        waiting_sort=_sort(wanted, "waiting"),
        over_sort=_sort(wanted, "over"),
        choices=tuple(_choice(rows, wanted, name) for name in FILTERS),
        tree_query=wanted.query(view=""),
        flat_query=wanted.query(view=FLAT),
        usage=usage,
        reserved=sum(row.reserved for row in top),
        unused=sum(max(row.reserved - row.usage.reserved, 0) for row in top),
        waiting=waiting,
        reasons=reasons,
        reason_bar=parts([(one.word.kind, one.count) for one in reasons]),
        span=span_words((now - began).total_seconds()),
        is_admin=is_admin(user),
        topics=("policies", "overview", *topics_of("policy", [row.policy.pk for row in rows])),
    )


def _sort(wanted: PolicyFilter, by: str) -> Sort:
    is_on = wanted.sort == by
    return Sort(is_on=is_on, query=wanted.query(sort="" if is_on else by))


def _choice(rows: Sequence[PolicyRow], wanted: PolicyFilter, name: str) -> FilterButton:
    label, fits = FILTERS[name]
    is_on = wanted.only == name
    count = sum(1 for row in rows if fits(row))
    return FilterButton(label, count, is_on=is_on, query=wanted.query(only="" if is_on else name))


def _shown(rows: Sequence[PolicyRow], wanted: PolicyFilter) -> list[PolicyRow]:
    """The matching policies in the wanted order; in a tree also their ancestors."""
    word = wanted.name.casefold()
    matches = FILTERS[wanted.only][1] if wanted.only else None

    def fits(row: PolicyRow) -> bool:
        names = (row.policy.name.casefold(), row.policy.group.name.casefold())
        is_named = any(word in name for name in names)
        return is_named and (matches is None or matches(row))

    if wanted.view == FLAT:
        found = [replace(row, depth=0) for row in rows if fits(row)]
        return sorted(found, key=SORTS[wanted.sort], reverse=True) if wanted.sort else found
    return _with_parents(_sorted(rows, wanted.sort), fits)


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


def _with_parents(rows: Sequence[PolicyRow], fits: Callable[[PolicyRow], bool]) -> list[PolicyRow]:
    """The matching policies and their ancestors."""
    parents = {row.policy.pk: row.policy.parent_id for row in rows}
    kept: set[int | None] = set()
    for row in rows:
        at: int | None = row.policy.pk if fits(row) else None
        while at in parents and at not in kept:
            kept.add(at)
            at = parents[at]
    return [row for row in rows if row.policy.pk in kept]


def _reasons(waiting: WaitingTasks) -> tuple[ReasonCount, ...]:
    """The most frequent reasons, the rest as one."""
    found = [ReasonCount(REASONS.get(code, UNKNOWN_REASON), count) for code, count in waiting.codes]
    rest = sum(one.count for one in found[MOST_REASONS:])
    more = (ReasonCount(Word("wait", "ellipsis", "other"), rest),) if rest else ()
    return (*found[:MOST_REASONS], *more)
