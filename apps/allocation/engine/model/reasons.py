"""Why a task waits: a code and its numbers, as plain data without names.

Names are looked up when the reason is read (`apps/allocation/explanation`), so that names which a
reader may not see never get into a stored reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from apps.allocation.engine.model.snapshot import Id


class ReasonCode(StrEnum):
    """What keeps a task waiting (docs/allocation.md, "Why a task waits")."""

    DISABLED = "disabled"
    PAUSED = "paused"
    BUDGET = "budget"
    NO_POOL = "no_pool"
    NO_SERVER = "no_server"
    LIMIT = "limit"
    NEEDS_RESERVATION = "needs_reservation"
    OVER_QUOTA_NOT_ALLOWED = "over_quota_not_allowed"
    CAPACITY = "capacity"
    OUTRANKED = "outranked"
    BEHIND = "behind"
    HELD = "held"
    DRAINING = "draining"
    PROTECTED = "protected"
    ON_HOLD = "on_hold"
    ADMIN_HOLD = "admin_hold"
    DEPENDENCY = "dependency"


# Of tasks that passes leave out: no pass gives these reasons.
INELIGIBLE_CODES = frozenset({ReasonCode.ON_HOLD, ReasonCode.ADMIN_HOLD, ReasonCode.DEPENDENCY})


@dataclass(frozen=True, slots=True)
class Detail:
    """One blocker. Fields that do not apply are None or empty; amounts are thousandths.

    * paused: `queue`, `pool` or `policy`
    * budget: `policy`; its amounts are looked up with its name
    * no_server: `pool`
    * limit: `policy`, `key`, `usage`, `limit`, `needed`; `user` when it is the limit per user
    * needs_reservation, over_quota_not_allowed: `policy`, `key`, `usage`, `limit` (the
      reservation), `needed`
    * capacity: `pool`, `key`, `needed`, `free`, and in a pool with nodes `largest`, the most that
      one node has free; `needed` is of one member where `largest` is set and the nodes are short
    * outranked: `pool`, `count` tasks of `policies`
    * behind: `position` in `queue`, or after `tasks` in the strict `policy`
    * held: `pool`, `policy` for whose `tasks` it is held, `key`, `free`, `limit` (what is held)
    * draining: `pool`, `tasks` that have to stop first
    * protected: `pool`, `tasks`, `until_us`
    * on_hold, admin_hold: nothing
    * dependency: `tasks` that have to end first
    """

    pool: Id | None = None
    policy: Id | None = None
    queue: Id | None = None
    user: Id | None = None
    policies: tuple[Id, ...] = ()
    tasks: tuple[Id, ...] = ()
    key: str | None = None
    needed: int | None = None
    free: int | None = None
    largest: int | None = None
    usage: int | None = None
    limit: int | None = None
    count: int | None = None
    position: int | None = None
    until_us: int | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    code: ReasonCode
    details: tuple[Detail, ...] = ()


_NAMES = tuple(field.name for field in fields(Detail))
_TUPLES = frozenset({"policies", "tasks"})


def to_data(reason: Reason) -> dict[str, object]:
    """JSON-ready, without the fields that are not set."""
    return {
        "code": reason.code.value,
        "details": [_detail_data(one) for one in reason.details],
    }


def _detail_data(detail: Detail) -> dict[str, object]:
    data: dict[str, object] = {}
    for name in _NAMES:
        value = getattr(detail, name)
        if value is None or value == ():
            continue
        data[name] = list(value) if name in _TUPLES else value
    return data


def from_data(data: Mapping[str, object]) -> Reason:
    """The reason that `to_data` wrote.

    Raises:
        ValueError: the code or a field is unknown.
    """
    details = data.get("details") or ()
    if not isinstance(details, list | tuple):
        details = (details,)
    return Reason(ReasonCode(str(data.get("code"))), tuple(_detail(one) for one in details))


def _detail(data: object) -> Detail:
    if not isinstance(data, Mapping):
        raise ValueError("a detail is not an object")
    unknown = sorted(set(data) - set(_NAMES))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]}")
    values = {
        name: tuple(value) if name in _TUPLES and isinstance(value, list) else value
        for name, value in data.items()
    }
    return Detail(**values)  # type: ignore[arg-type]  # checked by name above, written by to_data
