"""Who has a right to take what, judged by the usage of the moment, and what is prey at all."""

from __future__ import annotations

from collections.abc import Iterable

from apps.allocation.engine.compiled import Amounts, ServingKey, Work
from apps.allocation.engine.fair import FairShare, Shares
from apps.allocation.engine.flocks import Flock
from apps.allocation.engine.ledger import Ledger
from apps.allocation.engine.snapshot import Held, OverQuota, Preemption
from apps.allocation.engine.standing import covers_wholly

# Rights, the better first; under fair shares a second choice comes after all of the first.
FIRST, SECOND_CHOICE = 0, 1


class Rights:
    """Who may take capacity from whom."""

    def __init__(self, ledger: Ledger, shares: Shares) -> None:
        self.ledger = ledger
        self.shares = shares
        settings = ledger.compiled.snapshot.settings
        self.is_fair = settings.over_quota is OverQuota.FAIR_SHARE
        # By pool: whether a task of it may ever take work of its own policy, though preemptible.
        self._takes_own = [
            level not in (Preemption.NONE, Preemption.RECLAIM) for level in ledger.compiled.levels
        ]
        # The largest share of all policies, on which turn of the ledger.
        self._largest: FairShare = (0, 0)
        self._largest_turn = -1

    def may_exist(self, work: Work, pools: Iterable[int]) -> bool:
        """Whether a right to anything is possible, whatever runs; for most who wait it is not.

        Own work needs a higher level than `reclaim`, or a taker that is not preemptible.
        """
        if not work.run.is_preemptible or self.is_covered(work) or self._is_poorer(work):
            return True
        return any(map(self._takes_own.__getitem__, pools))

    def _is_poorer(self, work: Work) -> bool:
        """Whether with the task it has, on some level, less of a share than somebody has now."""
        if not self.is_fair:
            return False
        ledger = self.ledger
        turn = sum(ledger.turns)
        if self._largest_turn != turn:
            policies = range(len(ledger.usage))
            self._largest = max([self.shares.after(ledger, one, ()) for one in policies])
            self._largest_turn = turn
        amounts = work.shape.amounts
        return any(self.shares.after(ledger, one, amounts) < self._largest for one in work.chain)

    def is_covered(self, work: Work) -> bool:
        """Whether some policy of its path covers it by its whole usage."""
        amounts = work.shape.amounts
        if work.has_exceeded:
            return False
        return any(covers_wholly(self.ledger, policy, amounts) for policy in work.chain)

    def over_others(
        self, work: Work, flock: Flock, level: Preemption, *, is_over: bool
    ) -> int | None:
        """Right to another policy's work: FIRST, SECOND_CHOICE, or None.

        Args:
            is_over: the taker stands as over quota.
        """
        part = parting(work.chain, flock.chain)
        if not all(self.is_over(policy, flock) for policy in flock.chain[part:]):
            # Not by a better rank either: what its team covers would take it back at once.
            return None
        mine, theirs = work.chain[part], flock.chain[part]
        if not work.has_exceeded and covers_wholly(self.ledger, mine, work.shape.amounts):
            return FIRST
        if self.is_fair and (tier := self._fairer(work, mine, flock, theirs)) is not None:
            return tier
        return FIRST if is_over and self._ranks_above(work, flock, level) else None

    def _ranks_above(self, work: Work, flock: Flock, level: Preemption) -> bool:
        """At the level `rank`: over-quota work with a worse place; not for a later submission."""
        if level is not Preemption.RANK or self.is_fair:
            return False
        return work.prefixes[flock.pool][:3] < flock.place and self.is_over(flock.chain[0], flock)

    def _fairer(self, work: Work, mine: int, flock: Flock, theirs: int) -> int | None:
        ledger = self.ledger
        taker = self.shares.after(ledger, mine, work.shape.amounts)
        if taker >= self.shares.after(ledger, theirs, ledger.without_leaving(theirs, ())):
            return None
        less = tuple((key, -amount) for key, amount in flock.shape.amounts)
        without = ledger.without_leaving(theirs, less)
        return FIRST if taker <= self.shares.after(self.ledger, theirs, without) else SECOND_CHOICE

    def is_over(self, policy: int, flock: Flock) -> bool:
        """Whether the policy is over for that running work, which its usage includes."""
        return flock.is_exempt or not self.covers_rest(policy, flock)

    def covers_rest(self, policy: int, flock: Flock) -> bool:
        """Whether all that stays of the policy's work is within its reservation, in these keys."""
        rest = flock.none_more
        leaving = self.ledger.leaving.get(policy)
        if leaving is not None:
            rest = tuple([(key, -leaving[key]) for key, _ in rest])
        return covers_wholly(self.ledger, policy, rest)

    def over_own(
        self,
        work: Work,
        place: ServingKey,
        flock: Flock,
        held: Held,
        *,
        level: Preemption,
        missing: frozenset[int],
        is_over: bool,
    ) -> bool:
        """Right to a task of the taker's own policy.

        Args:
            place: of the taker in the pool.
            missing: keys that the taker lacks in the pool or in a limit.
            is_over: the taker stands as over quota.
        """
        if is_over and self._ranks_above(work, flock, level):
            return True
        if flock.serving_key(held) <= place:
            return False
        if not work.run.is_preemptible and flock.priority <= work.run.priority:
            return True
        if level in (Preemption.NONE, Preemption.RECLAIM) or flock.priority >= work.run.priority:
            return False
        if work.has_exceeded and not flock.is_exempt:
            # It is never within a reservation: what is would take room back from whoever profits.
            return False
        reserved = self.ledger.compiled.reserved[work.policy]
        return all(
            amount <= reserved.get(key, 0) for key, amount in work.shape.amounts if key in missing
        )

    def shares_along(self, work: Work, flock: Flock) -> tuple[FairShare, ...]:
        """Shares of the victim's policies, from where its path parts from the taker's."""
        if not self.is_fair:
            return ()
        part = parting(work.chain, flock.chain)
        return tuple(self.shares.after(self.ledger, one, ()) for one in flock.chain[part:])


def parting(mine: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    """The first level from the top at which two paths differ.

    Work that still runs in a policy which was given children since ends its path above theirs: it
    is judged by its own policy.
    """
    for level, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        if one != other:
            return level
    return min(len(mine), len(theirs)) - 1


Watched = dict[Amounts, tuple[Flock, set[int]]]


class Prey:
    """What may be taken, by pool, and what of it belongs to policies that are over.

    Victims only make policies less over, so that what is found here bounds what a taker can find
    in other policies. It is looked up anew only when a policy's being over flips.
    """

    def __init__(self, rights: Rights, flocks: dict[int, list[Flock]]) -> None:
        self.flocks = flocks
        self._rights = rights
        self._levels = rights.ledger.compiled.levels
        self._own: dict[tuple[int, int], list[Flock]] = {}
        self._over: dict[int, list[Flock]] = {}
        self._largest: dict[int, FairShare] = {}
        # By policy and keys: a flock to ask with, and the pools of which it may be the prey.
        self._watched: dict[int, Watched] = {}
        self._flags: dict[tuple[int, Amounts], bool] = {}
        # By pool: grows with everything that gives others more to take in it.
        self.versions = [0] * len(self._levels)
        for found in flocks.values():
            for flock in found:
                self._enter(flock)

    def add(self, flock: Flock) -> None:
        """Something more that may be taken."""
        self.flocks.setdefault(flock.pool, []).append(flock)
        self._enter(flock)
        if flock.pool in self._over and self.is_prey(flock):
            self._over[flock.pool].append(flock)

    def _enter(self, flock: Flock) -> None:
        if self._levels[flock.pool] is Preemption.NONE:
            return
        self._own.setdefault((flock.pool, flock.policy), []).append(flock)
        for policy in dict.fromkeys((flock.chain[0], flock.policy)):
            watched = self._watched.setdefault(policy, {})
            watched.setdefault(flock.none_more, (flock, set()))[1].add(flock.pool)

    def own(self, pool: int, policy: int) -> list[Flock]:
        return self._own.get((pool, policy), [])

    def over(self, pool: int) -> list[Flock]:
        """What others could take at most."""
        found = self._over.get(pool)
        if found is None:
            found = [flock for flock in self.flocks.get(pool, ()) if self.is_prey(flock)]
            self._over[pool] = found
        return found

    def is_prey(self, flock: Flock) -> bool:
        """Whether others could have a right to it."""
        level = self._levels[flock.pool]
        if level is Preemption.NONE:
            return False
        return self._is_over(flock.policy, flock) or (
            level is Preemption.RANK and self._is_over(flock.chain[0], flock)
        )

    def _is_over(self, policy: int, flock: Flock) -> bool:
        if flock.is_exempt:
            return True
        name = (policy, flock.none_more)
        found = self._flags.get(name)
        if found is None:
            found = self._rights.is_over(policy, flock)
            self._flags[name] = found
        return found

    def refresh(self, chain: Iterable[int]) -> None:
        """Usage of these policies has changed."""
        self._largest.clear()
        for policy in chain:
            for keys, (flock, pools) in self._watched.get(policy, {}).items():
                is_over = not self._rights.covers_rest(policy, flock)
                if self._flags.get((policy, keys)) is not is_over:
                    self._flags[policy, keys] = is_over
                    for pool in pools:
                        self._over.pop(pool, None)
                        self.versions[pool] += is_over

    def may_have(self, work: Work, pool: int, *, is_over: bool) -> bool:
        """Whether a search in other policies could find anything; most without a right end here.

        Who is covered nowhere on its path and has no smaller share has no first victim, and
        rights over others grow only with victims.
        """
        prey = self.over(pool)
        if not prey:
            return False
        if is_over and self._levels[pool] is Preemption.RANK:
            return True
        rights = self._rights
        amounts = work.shape.amounts
        if rights.is_covered(work):
            return True
        return rights.is_fair and any(
            rights.shares.after(rights.ledger, policy, amounts) < self._largest_share(pool)
            for policy in work.chain
        )

    def may_have_own(self, work: Work, pool: int) -> bool:
        """Whether it could take anything of its own policy."""
        level = self._levels[pool]
        own = self.own(pool, work.policy)
        if level is Preemption.NONE or not own:
            return False
        if not work.run.is_preemptible or level is Preemption.RANK:
            return True
        return level is Preemption.PRIORITY and any(
            flock.priority < work.run.priority for flock in own
        )

    def _largest_share(self, pool: int) -> FairShare:
        """Of all policies that have something to take in `pool`."""
        found = self._largest.get(pool)
        if found is None:
            rights = self._rights
            policies = {policy for flock in self.over(pool) for policy in flock.chain}
            found = max(rights.shares.after(rights.ledger, one, ()) for one in sorted(policies))
            self._largest[pool] = found
        return found
