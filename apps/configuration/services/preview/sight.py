"""What of a preview its reader may know: an administrator of a tenant, nothing beside its tree."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from apps.accounts.models import User
from apps.allocation.engine.snapshot import Id, Snapshot
from apps.allocation.explaining import Names
from apps.allocation.whatif.comparing import Difference
from apps.configuration.services.tenancy import is_tenants_own
from apps.policies.selectors import pools_visible_to
from apps.policies.tenancy import policies_administered_by
from apps.tasks.selectors.seen import tasks_visible_to


@dataclass(frozen=True, slots=True)
class Sight:
    """`policies` are those of the reader, None for all; everything else follows from them."""

    reader: User | None = None
    policies: frozenset[Id] | None = None
    queues: frozenset[Id] = frozenset()
    strange: frozenset[int] = frozenset()

    @classmethod
    def of(cls, reader: User | None, *snapshots: Snapshot) -> Self:
        """Of somebody who reads; a policy that the change makes is the reader's with its parent."""
        if reader is None or not is_tenants_own(reader):
            return cls()
        every = [policy for snapshot in snapshots for policy in snapshot.policies]
        own: set[Id] = set(policies_administered_by(reader).values_list("pk", flat=True))
        # Parents may stand behind their children.
        for _ in every:
            more = {policy.id for policy in every if policy.parent in own} - own
            if not more:
                break
            own |= more
        queues = [queue for snapshot in snapshots for queue in snapshot.queues]
        return cls(
            reader=reader,
            policies=frozenset(own),
            queues=frozenset(queue.id for queue in queues if queue.policy in own),
            strange=frozenset(int(policy.id) for policy in every if policy.id not in own),
        )

    @property
    def is_whole(self) -> bool:
        return self.policies is None

    def sees(self, policy: Id | None) -> bool:
        """Whether the policy is one of the reader's."""
        return self.policies is None or policy in self.policies

    def of_tasks(self, found: Difference, policy_of: Callable[[Id], Id | None]) -> Difference:
        """The difference that the change makes to tasks of the reader's policies."""
        if self.policies is None:
            return found

        def is_own(task: Id) -> bool:
            return self.sees(policy_of(task))

        return Difference(
            starts=tuple(one for one in found.starts if is_own(one.task)),
            preempted=tuple(one for one in found.preempted if is_own(one.task)),
            moved=tuple(filter(is_own, found.moved)),
            delayed=tuple(filter(is_own, found.delayed)),
            spared=tuple(filter(is_own, found.spared)),
            rejected=tuple(one for one in found.rejected if one.run.queue in self.queues),
            waiting=tuple(pair for pair in found.waiting if pair[0].queue in self.queues),
        )

    def of_names(self, names: Names) -> Names:
        """Names of the reader's own; of others the words that tell nothing."""
        if self.policies is None or self.reader is None:
            return names
        pools = set(pools_visible_to(self.reader).values_list("pk", flat=True))
        seen = tasks_visible_to(self.reader).filter(pk__in=list(names.tasks))
        return replace(
            names,
            pools={pk: name for pk, name in names.pools.items() if pk in pools},
            policies={pk: name for pk, name in names.policies.items() if pk in self.policies},
            queues={pk: name for pk, name in names.queues.items() if pk in self.queues},
            tasks={str(pk): name for pk, name in seen.values_list("pk", "name")},
            strange=self.strange,
        )
