"""Chips for the filters that links of figures set on the list of tasks; each can be removed."""

from dataclasses import dataclass

from apps.access.selectors import pools_visible_to, profiles_visible_to
from apps.accounts.models import User
from apps.allocation.explanation.names import ANOTHER_POOL
from apps.dashboard.selectors.tasks import TaskFilter, visible_task

_QUOTAS = {"reserved": "Within reservations", "over": "Over quota"}
_OF_ONE_POLICY = {"reserved": "Within own reservation", "over": "Beyond own reservation"}


@dataclass(frozen=True, slots=True)
class FilterChip:
    """A part of the filter that comes from a link: its words, and the list without it."""

    name: str
    value: str
    text: str
    query: str


def filter_chips(user: User, wanted: TaskFilter) -> list[FilterChip]:
    """What the form of the list has no field for."""
    found: list[tuple[str, str, str]] = []
    if wanted.pool is not None:
        pool = pools_visible_to(user).filter(pk=wanted.pool).first()
        found.append(("pool", str(wanted.pool), pool.name if pool else ANOTHER_POOL))
    if wanted.profile is not None:
        profile = profiles_visible_to(user).filter(pk=wanted.profile).first()
        found.append(("profile", str(wanted.profile), profile.name if profile else "Profile"))
    if wanted.quota:
        # Tasks of one policy are held against its own reservation, as its figures are.
        words = _OF_ONE_POLICY if wanted.policy is not None else _QUOTAS
        found.append(("quota", wanted.quota, words[wanted.quota]))
    if wanted.array is not None:
        array = visible_task(user, str(wanted.array))
        found.append(("array", str(wanted.array), f"Array {array.name}" if array else "Array"))
    return [
        FilterChip(name, value, text, wanted.first_page(**{name: ""}))
        for name, value, text in found
    ]
