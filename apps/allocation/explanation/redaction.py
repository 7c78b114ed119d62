"""Reasons that depend on another tenant's tasks: the same verdict, and none of its numbers.

They may say what is free in a pool and what the task needs, but not how many tasks of others run,
wait, stop or are protected, nor how much is held for them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.allocation.engine.model.reasons import ReasonCode
from apps.allocation.explanation.names import OTHER_TENANTS, ReaderNames
from apps.allocation.explanation.sentences import Sentence, amount_words

# What stays of a detail next to the words for what it names.
_KEPT = ("pool", "policy", "policies", "tasks", "key", "free", "needed")
_MOST_NAMED = 2


def is_about_other_tenants(reason: Mapping[str, Any], names: ReaderNames) -> bool:
    """Whether the reason depends on work of other tenants."""
    code, details = reason["code"], reason.get("details", ())
    if code in {ReasonCode.DRAINING, ReasonCode.PROTECTED}:
        return any(
            names.is_other_tenants_task(task) for one in details for task in one.get("tasks", ())
        )
    if code in {ReasonCode.OUTRANKED, ReasonCode.HELD}:
        policies = [pk for one in details for pk in (*one.get("policies", ()), one.get("policy"))]
        return any(names.is_other_tenants(pk) for pk in policies)
    return False


def redacted_sentence(reason: Mapping[str, Any], names: ReaderNames) -> Sentence:
    """Verdict and help of a reason that `is_about_other_tenants`."""
    return _SENTENCES[reason["code"]](list(reason.get("details", ())), names)


def redacted_detail(detail: Mapping[str, Any]) -> dict[str, Any]:
    """What of a detail such a reader may have."""
    return {key: detail[key] for key in _KEPT if key in detail}


def _outranked(details: list[Mapping[str, Any]], names: ReaderNames) -> Sentence:
    parts = []
    for one in details:
        who = list(dict.fromkeys(names.policy(policy) for policy in one.get("policies", ())))
        parts.append(f"{names.pool(one.get('pool'))} serves {_listed(who)} first")
    return Sentence(
        f"{'; '.join(parts[:_MOST_NAMED])}.",
        "It moves up as that work starts; within a policy, a higher priority helps.",
    )


def _held(details: list[Mapping[str, Any]], names: ReaderNames) -> Sentence:
    one = details[0]
    free, needed = (amount_words(one.get("key"), one.get(name)) for name in ("free", "needed"))
    return Sentence(
        f"{names.pool(one.get('pool'))} has {free} free, held at least in part for "
        f"{OTHER_TENANTS}; the task needs {needed}.",
        "It starts once more is free.",
    )


def _draining(details: list[Mapping[str, Any]], names: ReaderNames) -> Sentence:
    return Sentence(
        f"Work in {_pools(details, names)} is stopping so that this task can start.",
        "Nothing needs to be done: it starts by itself.",
    )


def _protected(details: list[Mapping[str, Any]], names: ReaderNames) -> Sentence:
    return Sentence(
        f"It has a claim on capacity in {_pools(details, names)}, but the work there may not be "
        "stopped now.",
        "Nothing needs to be done: it starts as soon as enough of that work ends.",
    )


def _pools(details: Iterable[Mapping[str, Any]], names: ReaderNames) -> str:
    found = dict.fromkeys(names.pool(one["pool"]) for one in details if "pool" in one)
    return _listed(list(found)[:_MOST_NAMED])


def _listed(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


_SENTENCES = {
    ReasonCode.OUTRANKED: _outranked,
    ReasonCode.HELD: _held,
    ReasonCode.DRAINING: _draining,
    ReasonCode.PROTECTED: _protected,
}
