"""A reason as a sentence that its reader understands, and what would help.

Names come from the caller, which knows what the reader may see: "another team" with the same
numbers is a name too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from apps.allocation.engine.model.quantities import GPU, WHOLE
from apps.allocation.engine.model.reasons import Reason, ReasonCode
from apps.allocation.engine.model.snapshot import Id
from apps.core.units import milli_text
from apps.policies.budgets import month_of, next_month

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECONDS = 1_000_000
# Pools that a sentence names, before it only counts them.
MOST_NAMED = 2


class NameLookup(Protocol):
    """What to call things for this reader."""

    def pool(self, id_: Id) -> str: ...

    def policy(self, id_: Id) -> str: ...

    def queue(self, id_: Id) -> str: ...

    def task(self, id_: Id) -> str: ...

    def budget(self, id_: Id, month: date) -> str:
        """What is spent of a policy's budget of a month; empty where that is not to be said."""

    def is_reader(self, id_: Id) -> bool:
        """Whether the reader is this user; others read of the task's owner."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """`text` says why the task waits, `help` what would change it."""

    text: str
    help: str


def sentence(reason: Reason, names: NameLookup, *, now_us: int = 0) -> Sentence:
    """The reason in words; `now_us` is the moment from which a time is counted."""
    if reason.code is ReasonCode.PROTECTED:
        return _protected(reason, names, now_us)
    if reason.code is ReasonCode.BUDGET:
        return _budget(reason, names, now_us)
    return _WORDS[reason.code](reason, names)


def amount_words(key: str | None, milli: int | None) -> str:
    """An amount in a sentence: `4 GPUs`, `0.5 GPU`, `16 CPU cores`, `2048 MB of memory`."""
    milli = milli or 0
    number = milli_text(milli)
    is_one = 0 < milli <= WHOLE
    match key:
        case "gpu":
            return f"{number} {'GPU' if is_one else 'GPUs'}"
        case "cpu":
            return f"{number} CPU {'core' if is_one else 'cores'}"
        case "memory_mb":
            return f"{number} MB of memory"
        case "slot":
            return f"{number} {'slot' if is_one else 'slots'}"
        case _:
            return f"{number} {key or GPU}"


def _listed(words: Iterable[str]) -> str:
    found = list(dict.fromkeys(words))
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} and {found[-1]}"


def _tasks(count: int | None) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def _pools(reason: Reason, names: NameLookup) -> str:
    """The first pools by name: a list of fifty helps no reader."""
    found = [names.pool(one.pool) for one in reason.details if one.pool is not None]
    return _listed(_first(list(dict.fromkeys(found)), "pool"))


def _first(parts: list[str], what: str) -> list[str]:
    """The first parts, and how many more there are."""
    more = len(parts) - MOST_NAMED
    if more < 2:
        return parts
    return [*parts[:MOST_NAMED], f"{more} more {what}s"]


def _disabled(_reason: Reason, _names: NameLookup) -> Sentence:
    return Sentence(
        "Resource management is switched off, so no task is started.",
        "An administrator can switch it on again.",
    )


def _paused(reason: Reason, names: NameLookup) -> Sentence:
    what = []
    for detail in reason.details:
        if detail.queue is not None:
            what.append(f"the queue {names.queue(detail.queue)}")
        elif detail.policy is not None:
            what.append(f"the policy {names.policy(detail.policy)}")
        elif detail.pool is not None:
            what.append(f"the pool {names.pool(detail.pool)}")
    subject = _listed(what)
    verbs = "is paused and takes" if len(what) == 1 else "are paused and take"
    return Sentence(
        f"{subject[:1].upper()}{subject[1:]} {verbs} no new work.",
        "It goes on once an administrator ends the pause.",
    )


def _budget(reason: Reason, names: NameLookup, now_us: int) -> Sentence:
    """Of the policy that is next above the task, if those of several are spent."""
    policy = reason.details[0].policy or 0
    month = month_of(EPOCH + timedelta(microseconds=now_us))
    words = " ".join(filter(None, (names.budget(policy, month), "spent")))
    return Sentence(
        f"Budget of {names.policy(policy)} for {month:%B}: {words}.",
        f"Starts on 1 {next_month(month):%B} or when an administrator raises it.",
    )


def _no_pool(_reason: Reason, _names: NameLookup) -> Sentence:
    return Sentence(
        "The profile of this queue is linked to no pool.",
        "An administrator can link it to a pool in the resource configuration; "
        "or enqueue the task on another queue.",
    )


def _no_server(reason: Reason, names: NameLookup) -> Sentence:
    pools = _pools(reason, names)
    return Sentence(
        f"Nothing serves {pools}: no healthy node is attached.",
        "It starts by itself once a node comes back; if that takes long, tell an administrator.",
    )


def _limit(reason: Reason, names: NameLookup) -> Sentence:
    detail = reason.details[0]
    policy = names.policy(detail.policy) if detail.policy is not None else ""
    used, limit = amount_words(detail.key, detail.usage), amount_words(detail.key, detail.limit)
    needed = amount_words(detail.key, detail.needed)
    if (detail.needed or 0) > (detail.limit or 0):
        return Sentence(
            f"The task needs {needed}, and the limit of {policy} is {limit}.",
            "It can run with a smaller request, or once an administrator raises the limit.",
        )
    if detail.user is not None:
        who, whose = ("You use", "your own tasks")
        if not names.is_reader(detail.user):
            who, whose = ("Its owner uses", "its owner's tasks")
        return Sentence(
            f"{who} {used} of the {limit} that one user may hold in {policy}; "
            f"the task needs another {needed}.",
            f"It starts once enough of {whose} have ended.",
        )
    return Sentence(
        f"{policy} uses {used} of its limit of {limit}; the task needs another {needed}.",
        f"It starts once enough work of {policy} has ended, or with a higher limit.",
    )


def _needs_reservation(reason: Reason, names: NameLookup) -> Sentence:
    detail = reason.details[0]
    policy = names.policy(detail.policy) if detail.policy is not None else ""
    if (detail.needed or 0) > (detail.limit or 0):
        return Sentence(
            f"The task may not be preempted and needs {amount_words(detail.key, detail.needed)}, "
            f"more than the {amount_words(detail.key, detail.limit)} reserved for {policy}.",
            "Make it preemptible or smaller, or ask an administrator to reserve more.",
        )
    return Sentence(
        f"The task may not be preempted, so it starts only within the reservation of {policy}: "
        f"other work that may not be preempted uses {amount_words(detail.key, detail.usage)} of "
        f"the {amount_words(detail.key, detail.limit)}, and the task needs "
        f"{amount_words(detail.key, detail.needed)}.",
        "Make it preemptible, or wait until work that may not be preempted ends.",
    )


def _over_quota_not_allowed(reason: Reason, names: NameLookup) -> Sentence:
    if not reason.details:
        return Sentence(
            "Its owner may exceed the limit of the policy, so this task always counts as over "
            "quota, and the queue takes no over-quota work.",
            "Enqueue it on a queue that allows over-quota work.",
        )
    detail = reason.details[0]
    policy = names.policy(detail.policy) if detail.policy is not None else ""
    if (detail.needed or 0) > (detail.limit or 0):
        return Sentence(
            f"The task needs {amount_words(detail.key, detail.needed)}, more than the "
            f"{amount_words(detail.key, detail.limit)} reserved for {policy}, and this queue takes "
            "no over-quota work.",
            "Enqueue it on a queue that allows over-quota work, or make it smaller.",
        )
    return Sentence(
        f"{policy} uses {amount_words(detail.key, detail.usage)} of the "
        f"{amount_words(detail.key, detail.limit)} reserved for it, the task needs "
        f"{amount_words(detail.key, detail.needed)}, and this queue takes no over-quota work.",
        f"It starts once enough work of {policy} has ended; or enqueue it on a queue that allows "
        "over-quota work.",
    )


def _capacity(reason: Reason, names: NameLookup) -> Sentence:
    parts = []
    is_too_large = True
    for detail in reason.details:
        pool = names.pool(detail.pool) if detail.pool is not None else ""
        free = amount_words(detail.key, detail.free)
        needed = amount_words(detail.key, detail.needed)
        part = f"{pool} has {free} free of the {needed} needed"
        if detail.largest is not None and (detail.free or 0) >= (detail.needed or 0):
            on_one = f"at most {amount_words(detail.key, detail.largest)} on one node"
            most = on_one if detail.largest else "none on a node that takes new tasks"
            part = f"{pool} has {free} free, but {most}, of the {needed} needed"
        parts.append(part)
        is_too_large = is_too_large and (detail.limit or 0) < (detail.needed or 0)
    text = f"There is not enough free capacity: {'; '.join(_first(parts, 'pool'))}."
    if is_too_large:
        return Sentence(text, "It can never fit there: ask for less, or choose another queue.")
    return Sentence(text, "It starts once enough work has ended; a smaller task fits sooner.")


def _outranked(reason: Reason, names: NameLookup) -> Sentence:
    parts = [
        f"{names.pool(one.pool)} serves {_tasks(one.count)} of "
        f"{_listed(names.policy(policy) for policy in one.policies)} first"
        for one in reason.details
        if one.pool is not None
    ]
    return Sentence(
        f"{'; '.join(_first(parts, 'pool'))}.",
        "It moves up as those start; within a policy, a higher priority helps.",
    )


def _behind(reason: Reason, names: NameLookup) -> Sentence:
    detail = reason.details[0]
    if detail.queue is not None:
        return Sentence(
            f"It is number {detail.position} in {names.queue(detail.queue)}.",
            "It moves up as the tasks before it start.",
        )
    policy = names.policy(detail.policy) if detail.policy is not None else ""
    first = _listed(names.task(task) for task in detail.tasks)
    return Sentence(
        f"{policy} starts its tasks strictly in order, and {first} comes first.",
        f"It goes on once {first} has started or is removed from the queue.",
    )


def _held(reason: Reason, names: NameLookup) -> Sentence:
    detail = reason.details[0]
    pool = names.pool(detail.pool) if detail.pool is not None else ""
    policy = names.policy(detail.policy) if detail.policy is not None else ""
    return Sentence(
        f"{pool} has {amount_words(detail.key, detail.free)} free, of which "
        f"{amount_words(detail.key, detail.limit)} are held for {policy}, who has them reserved; "
        f"the task needs {amount_words(detail.key, detail.needed)}.",
        "It starts once more is free, or the task that they are held for has started.",
    )


def _draining(reason: Reason, names: NameLookup) -> Sentence:
    count = sum(len(one.tasks) for one in reason.details)
    verb = "is" if count == 1 else "are"
    return Sentence(
        f"{_tasks(count)} in {_pools(reason, names)} {verb} stopping so that this task can start.",
        "Nothing needs to be done: it starts by itself.",
    )


def _protected(reason: Reason, names: NameLookup, now_us: int) -> Sentence:
    count = sum(len(one.tasks) for one in reason.details)
    until = min((one.until_us for one in reason.details if one.until_us is not None), default=None)
    when = ""
    if until is not None:
        minutes = max(1, -(-(until - now_us) // (60 * MICROSECONDS)))
        when = f"; the first of them may be stopped in {minutes} min"
    verb = "be stopped yet" if when else "be stopped again"
    return Sentence(
        f"It has a claim on capacity in {_pools(reason, names)}, but the "
        f"{'task' if count == 1 else _tasks(count)} there may not {verb}{when}.",
        "Nothing needs to be done: it starts as soon as enough of that work ends"
        f"{' or may be stopped' if when else ''}.",
    )


def _on_hold(_reason: Reason, _names: NameLookup) -> Sentence:
    return Sentence(
        "Its owner put it on hold.",
        "Passes consider it again once it is released; it keeps its place in the queue.",
    )


def _admin_hold(_reason: Reason, _names: NameLookup) -> Sentence:
    return Sentence(
        "A user who manages its queue put it on hold.",
        "Passes consider it again once such a user releases it; it keeps its place in the queue.",
    )


def _dependency(reason: Reason, names: NameLookup) -> Sentence:
    found = [names.task(task) for one in reason.details for task in one.tasks]
    what = _listed(_first(list(dict.fromkeys(found)), "task")) or "other tasks"
    return Sentence(
        f"It waits until {what} has ended."
        if len(found) == 1
        else f"It waits until {what} have ended.",
        "It can start once they have ended as it needs; otherwise it is rejected.",
    )


_WORDS: dict[ReasonCode, Callable[[Reason, NameLookup], Sentence]] = {
    ReasonCode.DISABLED: _disabled,
    ReasonCode.PAUSED: _paused,
    ReasonCode.NO_POOL: _no_pool,
    ReasonCode.NO_SERVER: _no_server,
    ReasonCode.LIMIT: _limit,
    ReasonCode.NEEDS_RESERVATION: _needs_reservation,
    ReasonCode.OVER_QUOTA_NOT_ALLOWED: _over_quota_not_allowed,
    ReasonCode.CAPACITY: _capacity,
    ReasonCode.OUTRANKED: _outranked,
    ReasonCode.BEHIND: _behind,
    ReasonCode.HELD: _held,
    ReasonCode.DRAINING: _draining,
    ReasonCode.ON_HOLD: _on_hold,
    ReasonCode.ADMIN_HOLD: _admin_hold,
    ReasonCode.DEPENDENCY: _dependency,
}
