"""A stored reason as its reader is told it: sentence, what would help, and what it counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from apps.allocation.engine.reasons import Code, from_data
from apps.allocation.engine.sentences import sentence
from apps.allocation.explaining.names import Names, number_of
from apps.allocation.explaining.outside import detail_outside, is_outside, sentence_outside

# Sentences may begin with the word for something that has no name here.
_WORDS = ("your ", "another ", "an earlier ", "work outside ")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Told:
    """One reason. `details` hold amounts in thousandths, ids of what the reader sees, and names.

    Under `names` everything has a word; ids of what is not the reader's are None, or left out of
    their list, of which `task_count` is the length. `rank` is the place of the pool among those of
    the task's profile, from 1.
    """

    code: str
    sentence: str
    help: str
    details: tuple[Mapping[str, Any], ...] = ()


def tell_all(
    reasons: Iterable[Mapping[str, Any]], names: Names, *, now: datetime
) -> tuple[Told, ...]:
    """All of them, the dominant one first as the pass stored them."""
    return tuple(tell(reason, names, now=now) for reason in reasons)


def tell(reason: Mapping[str, Any], names: Names, *, now: datetime) -> Told:
    """One stored reason, for the reader of `names`."""
    details = reason.get("details", ())
    if is_outside(reason, names):
        said = sentence_outside(reason, names)
        details = [detail_outside(one) for one in details]
    else:
        now_us = (now - _EPOCH) // timedelta(microseconds=1)
        said = sentence(from_data(reason), names, now_us=now_us)
    return Told(
        code=str(reason["code"]),
        sentence=_begun(said.text),
        help=said.help + (names.closed_in(details) if reason["code"] == Code.CAPACITY else ""),
        details=tuple(_detail(detail, names) for detail in details),
    )


def _begun(text: str) -> str:
    """With a capital letter, unless a name comes first, which is spelt as people spell it."""
    return text[:1].upper() + text[1:] if text.startswith(_WORDS) else text


def _detail(detail: Mapping[str, Any], names: Names) -> dict[str, Any]:
    told = dict(detail)
    words: dict[str, Any] = {}
    for field, known, word in (
        ("pool", names.pools, names.pool),
        ("policy", names.policies, names.policy),
        ("queue", names.queues, names.queue),
    ):
        if field in told:
            words[field] = word(told[field])
            told[field] = told[field] if number_of(told[field]) in known else None
    if number_of(detail.get("pool")) in names.routing:
        told["rank"] = names.rank(detail["pool"])
    if "policies" in told:
        words["policies"] = list(dict.fromkeys(names.policy(one) for one in told["policies"]))
        told["policies"] = [one for one in told["policies"] if number_of(one) in names.policies]
    if "tasks" in told:
        seen = [one for one in told["tasks"] if str(one) in names.tasks]
        words["tasks"] = [names.task(one) for one in seen]
        # How many there are of others is told within an organisation only.
        is_own = not any(map(names.is_strange_task, told["tasks"]))
        told["task_count"], told["tasks"] = len(told["tasks"] if is_own else seen), seen
    if "user" in told and not names.is_reader(told["user"]):
        told["user"] = None
    if "until_us" in told:
        # Moments are texts like everywhere else in REST.
        told["until"] = _EPOCH + timedelta(microseconds=told.pop("until_us"))
    return {**told, "names": words}
