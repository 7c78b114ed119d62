"""A stored reason as its reader gets it: sentence, what would help, and what it counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from apps.allocation.engine.model.reasons import ReasonCode, from_data
from apps.allocation.explanation.names import ReaderNames, number_of
from apps.allocation.explanation.redaction import (
    is_about_other_tenants,
    redacted_detail,
    redacted_sentence,
)
from apps.allocation.explanation.sentences import sentence

# Sentences may begin with the word for something that has no name here.
_WORDS = ("your ", "another ", "an earlier ", "work outside ")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ReasonPayload:
    """One reason. `details` hold amounts in thousandths, ids of what the reader sees, and names.

    Under `names` everything has a word; ids of what is not the reader's are None, or left out of
    their list, of which `task_count` is the length. `rank` is the place of the pool among those of
    the task's profile, from 1.
    """

    code: str
    sentence: str
    help: str
    details: tuple[Mapping[str, Any], ...] = ()


def reason_payloads(
    reasons: Iterable[Mapping[str, Any]], names: ReaderNames, *, now: datetime
) -> tuple[ReasonPayload, ...]:
    """All of them, the dominant one first as the pass stored them."""
    return tuple(reason_payload(reason, names, now=now) for reason in reasons)


def reason_payload(
    reason: Mapping[str, Any], names: ReaderNames, *, now: datetime
) -> ReasonPayload:
    """One stored reason, for the reader of `names`."""
    details = reason.get("details", ())
    if is_about_other_tenants(reason, names):
        said = redacted_sentence(reason, names)
        details = [redacted_detail(one) for one in details]
    else:
        now_us = (now - _EPOCH) // timedelta(microseconds=1)
        said = sentence(from_data(reason), names, now_us=now_us)
    is_capacity = reason["code"] == ReasonCode.CAPACITY
    return ReasonPayload(
        code=str(reason["code"]),
        sentence=_capitalised(said.text),
        help=(names.help_with_closed(details) if is_capacity else "") or said.help,
        details=tuple(_detail(detail, names) for detail in details),
    )


def _capitalised(text: str) -> str:
    """With a capital letter, unless a name comes first, which keeps its spelling."""
    return text[:1].upper() + text[1:] if text.startswith(_WORDS) else text


def _detail(detail: Mapping[str, Any], names: ReaderNames) -> dict[str, Any]:
    payload = dict(detail)
    words: dict[str, Any] = {}
    for field, known, word in (
        ("pool", names.pools, names.pool),
        ("policy", names.policies, names.policy),
        ("queue", names.queues, names.queue),
    ):
        if field in payload:
            words[field] = word(payload[field])
            payload[field] = payload[field] if number_of(payload[field]) in known else None
    if number_of(detail.get("pool")) in names.routing:
        payload["rank"] = names.rank(detail["pool"])
    if "policies" in payload:
        words["policies"] = list(dict.fromkeys(names.policy(one) for one in payload["policies"]))
        payload["policies"] = [
            one for one in payload["policies"] if number_of(one) in names.policies
        ]
    if "tasks" in payload:
        seen = [one for one in payload["tasks"] if str(one) in names.tasks]
        words["tasks"] = [names.task(one) for one in seen]
        # How many tasks of others there are is said within a tenant only.
        is_own = not any(map(names.is_other_tenants_task, payload["tasks"]))
        payload["task_count"], payload["tasks"] = len(payload["tasks"] if is_own else seen), seen
    if "user" in payload and not names.is_reader(payload["user"]):
        payload["user"] = None
    if "until_us" in payload:
        # Moments are texts like everywhere else in REST.
        payload["until"] = _EPOCH + timedelta(microseconds=payload.pop("until_us"))
    return {**payload, "names": words}
