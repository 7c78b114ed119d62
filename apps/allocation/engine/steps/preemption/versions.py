"""Versions of what a failed attempt to preempt depends on."""

from __future__ import annotations


class PreemptionVersions:
    """Each grows with every change that may let an attempt succeed which has failed before.

    `pools`, by pool: what may give others more candidates there. `policies`, by policy: what may
    give its tasks more rights, budget or own candidates. `placements`: what is placed, or is not
    any more.
    """

    __slots__ = ("placements", "policies", "pools")

    def __init__(self, pools: int, policies: int) -> None:
        self.pools = [0] * pools
        self.policies = [0] * policies
        self.placements = 0
