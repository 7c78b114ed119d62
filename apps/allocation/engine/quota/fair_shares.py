"""Shares, by which over-quota work is compared under `fair_share`.

Share is the dominant share (Ghodsi et al., NSDI 2011) of what a policy uses beyond its
reservation, of all capacity, divided by its weight, as a whole number over one common
denominator.
"""

from __future__ import annotations

from math import lcm

from apps.allocation.engine.compile.compiled_snapshot import Amounts, CompiledSnapshot
from apps.allocation.engine.model.quantities import UNCOUNTED_UNLESS_LISTED
from apps.allocation.engine.quota.ledger import Ledger

# (1 where the share is infinite, the share over the common denominator)
FairShare = tuple[int, int]


class FairShares:
    """Shares of policies; comparable with each other, exact."""

    def __init__(self, compiled: CompiledSnapshot) -> None:
        self._compiled = compiled
        totals = [sum(pool.capacity.get(key) for pool in compiled.pools) for key in compiled.keys]
        whole = lcm(*(total for total in totals if total > 0))
        weights = lcm(*(one.weight_milli for one in compiled.policies if one.weight_milli > 0))
        self._parts = [whole // total * weights if total > 0 else None for total in totals]
        # What no pool counts is not capacity, so no policy has a share of it.
        listed = {key for pool in compiled.pools for key in pool.capacity}
        self._counted = [
            key in listed or key not in UNCOUNTED_UNLESS_LISTED for key in compiled.keys
        ]

    def after(self, ledger: Ledger, policy: int, amounts: Amounts) -> FairShare:
        """The share of `policy` once it uses `amounts` more."""
        more = dict(amounts)
        reserved = self._compiled.reserved[policy]
        weight = self._compiled.policies[policy].weight_milli
        most = 0
        for key, used in enumerate(ledger.usage[policy]):
            over = used + more.get(key, 0) - reserved.get(key, 0)
            if over > 0 and self._counted[key]:
                part = self._parts[key]
                if part is None or weight == 0:
                    return (1, 0)
                most = max(most, over * part // weight)
        return (0, most)
