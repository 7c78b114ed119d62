"""Reasons that depend on work of another organisation: the same verdict, and none of its numbers.

What is free in a pool and what the task needs may be told; how many tasks of others run, wait, stop
or are protected, and how much is held for them, may not.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.allocation.engine.reasons import Code
from apps.allocation.engine.sentences import Sentence, amount_text
from apps.allocation.explaining.names import OUTSIDE, Names

# What stays of a detail beside words for what it names.
_KEPT = ("pool", "policy", "policies", "tasks", "key", "free", "needed")
_MOST_NAMED = 2


def is_outside(reason: Mapping[str, Any], names: Names) -> bool:
    """Whether the reason depends on work that is none of the reader's."""
    code, details = reason["code"], reason.get("details", ())
    if code in {Code.DRAINING, Code.PROTECTED}:
        return any(names.is_strange_task(task) for one in details for task in one.get("tasks", ()))
    if code in {Code.OUTRANKED, Code.HELD}:
        policies = [pk for one in details for pk in (*one.get("policies", ()), one.get("policy"))]
        return any(names.is_strange(pk) for pk in policies)
    return False


def sentence_outside(reason: Mapping[str, Any], names: Names) -> Sentence:
    """Verdict and help of a reason that `is_outside`."""
    return _SENTENCES[reason["code"]](list(reason.get("details", ())), names)


def detail_outside(detail: Mapping[str, Any]) -> dict[str, Any]:
    """What of a detail such a reader may have."""
    return {key: detail[key] for key in _KEPT if key in detail}


def _outranked(details: list[Mapping[str, Any]], names: Names) -> Sentence:
    parts = []
    for one in details:
        who = list(dict.fromkeys(names.policy(policy) for policy in one.get("policies", ())))
        parts.append(f"{names.pool(one.get('pool'))} serves {_listed(who)} first")
    return Sentence(
        f"{'; '.join(parts[:_MOST_NAMED])}.",
        "It moves up as that work starts; within a policy, a higher priority helps.",
    )


def _held(details: list[Mapping[str, Any]], names: Names) -> Sentence:
    one = details[0]
    key = one.get("key")
    return Sentence(
        f"{names.pool(one.get('pool'))} has {amount_text(key, one.get('free'))} free, held at "
        f"least in part for {OUTSIDE}; the task needs {amount_text(key, one.get('needed'))}.",
        "It starts once more room is free.",
    )


def _draining(details: list[Mapping[str, Any]], names: Names) -> Sentence:
    return Sentence(
        f"Work in {_pools(details, names)} is stopping; the room comes back then.",
        "Nothing needs to be done: it starts by itself.",
    )


def _protected(details: list[Mapping[str, Any]], names: Names) -> Sentence:
    return Sentence(
        f"It has a claim on room in {_pools(details, names)}, but the work there may not be "
        "stopped now.",
        "Nothing needs to be done: it starts as soon as enough of that work ends.",
    )


def _pools(details: Iterable[Mapping[str, Any]], names: Names) -> str:
    found = dict.fromkeys(names.pool(one["pool"]) for one in details if "pool" in one)
    return _listed(list(found)[:_MOST_NAMED])


def _listed(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


_SENTENCES = {
    Code.OUTRANKED: _outranked,
    Code.HELD: _held,
    Code.DRAINING: _draining,
    Code.PROTECTED: _protected,
}
