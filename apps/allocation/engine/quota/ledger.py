"""Usage: per policy, of non-preemptible work, beyond limits, per user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from apps.allocation.engine.compile.compiled_snapshot import Amounts, CompiledSnapshot, GroupState
from apps.allocation.engine.model.snapshot import Id

UserKey = tuple[int, Id]


class LimitUse(NamedTuple):
    """What is charged against one limit, and what one more task would add; thousandths."""

    policy: int
    key: int
    used: int
    limit: int
    amount: int
    is_of_user: bool

    @property
    def is_exceeded(self) -> bool:
        """Whether the limit keeps one more task out."""
        return self.used + self.amount > self.limit


class Ledger:
    """Thousandths by policy index and key index. A policy's usage includes those below it.

    `versions` count the bookings below each policy without a parent: what was computed from usage
    of the same version still holds.

    `leaving` is the part of the usage that ends by itself: of work that stops, and whose capacity
    is promised to no task. It is charged until it is gone, but is no reason to preempt more.
    """

    __slots__ = ("compiled", "exempt", "leaving", "non_preemptible", "usage", "users", "versions")

    def __init__(self, compiled: CompiledSnapshot) -> None:
        policies, keys = len(compiled.policies), len(compiled.keys)
        self.compiled = compiled
        self.usage = [[0] * keys for _ in range(policies)]
        # Of work that is not preemptible.
        self.non_preemptible = [[0] * keys for _ in range(policies)]
        # Of the policy's own tasks that are not counted in its limit (*exceed limit*).
        self.exempt = [[0] * keys for _ in range(policies)]
        self.users: dict[UserKey, list[int]] = {}
        # By policy, where there is any.
        self.leaving: dict[int, list[int]] = {}
        self.versions = [0] * policies

    def charge(self, group: GroupState, count: int) -> None:
        """Book `count` tasks of `group`; a negative count releases them."""
        amounts = tuple((key, amount * count) for key, amount in group.shape.amounts)
        queued = group.queued
        self.book(
            group.chain,
            amounts,
            is_preemptible=queued.is_preemptible,
            is_exempt=group.has_exceeded,
            user=queued.user,
        )

    def book(
        self,
        chain: tuple[int, ...],
        amounts: Amounts,
        *,
        is_preemptible: bool,
        is_exempt: bool,
        user: Id | None,
    ) -> None:
        self.versions[chain[0]] += 1
        for policy in chain:
            _add(self.usage[policy], amounts)
            if not is_preemptible:
                _add(self.non_preemptible[policy], amounts)
            if user is not None and self.compiled.user_limits[policy]:
                _add(self.user_usage(policy, user), amounts)
        if is_exempt:
            _add(self.exempt[chain[-1]], amounts)

    def leave(self, chain: tuple[int, ...], amounts: Amounts) -> None:
        """Note that so much of what is booked ends by itself."""
        for policy in chain:
            _add(self.leaving.setdefault(policy, [0] * len(self.compiled.keys)), amounts)

    def without_leaving(self, policy: int, amounts: Amounts) -> Amounts:
        """`amounts` less what ends by itself: added to the usage, they say what stays."""
        leaving = self.leaving.get(policy)
        if leaving is None:
            return amounts
        more = dict(amounts)
        return tuple([(key, more.get(key, 0) - gone) for key, gone in enumerate(leaving)])

    def user_usage(self, policy: int, user: Id) -> list[int]:
        found = self.users.get((policy, user))
        if found is None:
            found = [0] * len(self.compiled.keys)
            self.users[policy, user] = found
        return found

    def limit_uses(
        self, chain: tuple[int, ...], amounts: Amounts, *, user: Id | None, is_exempt: bool
    ) -> Iterator[LimitUse]:
        """The limits that work of these amounts is charged against, from the top of `chain`.

        Args:
            is_exempt: it is not counted in the limit of its own policy, the last one.
        """
        compiled = self.compiled
        for policy in chain:
            limits = compiled.limits[policy]
            if limits and not (is_exempt and policy == chain[-1]):
                usage, exempt = self.usage[policy], self.exempt[policy]
                for key, amount in amounts:
                    if key in limits:
                        used = usage[key] - exempt[key]
                        yield LimitUse(policy, key, used, limits[key], amount, is_of_user=False)
            limits = compiled.user_limits[policy]
            if limits and user is not None:
                usage = self.user_usage(policy, user)
                for key, amount in amounts:
                    if key in limits:
                        used = usage[key]
                        yield LimitUse(policy, key, used, limits[key], amount, is_of_user=True)


def _add(into: list[int], amounts: Amounts) -> None:
    for key, amount in amounts:
        into[key] += amount
