"""What of a preview its reader may know: an administrator of a tenant, nothing but its tree."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from apps.access.selectors import policies_administered_by, pools_visible_to
from apps.accounts.models import User
from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.explanation import ReaderNames
from apps.allocation.whatif.comparison import PlanDifference
from apps.configuration.services.tenant_checks import is_tenant_admin_only
from apps.tasks.selectors.visibility import tasks_seen_with_queue


@dataclass(frozen=True, slots=True)
class Visibility:
    """`policies` are those of the reader, None for all; everything else follows from them."""

    reader: User | None = None
    policies: frozenset[Id] | None = None
    queues: frozenset[Id] = frozenset()
    other_tenants: frozenset[int] = frozenset()

    @classmethod
    def of(cls, reader: User | None, *snapshots: Snapshot) -> Self:
        """What `reader` may see; a policy that the change adds is visible with its parent."""
        if reader is None or not is_tenant_admin_only(reader):
            return cls()
        every = [policy for snapshot in snapshots for policy in snapshot.policies]
        own: set[Id] = set(policies_administered_by(reader).values_list("pk", flat=True))
        # Parents may come after their children.
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
            other_tenants=frozenset(int(policy.id) for policy in every if policy.id not in own),
        )

    @property
    def sees_all(self) -> bool:
        return self.policies is None

    def sees(self, policy: Id | None) -> bool:
        """Whether the policy is one of the reader's."""
        return self.policies is None or policy in self.policies

    def of_tasks(
        self, found: PlanDifference, policy_of: Callable[[Id], Id | None]
    ) -> PlanDifference:
        """The difference that the change makes to tasks of the reader's policies."""
        if self.policies is None:
            return found

        def is_own(task: Id) -> bool:
            return self.sees(policy_of(task))

        return PlanDifference(
            starts=tuple(one for one in found.starts if is_own(one.task)),
            preempted=tuple(one for one in found.preempted if is_own(one.task)),
            moved=tuple(filter(is_own, found.moved)),
            delayed=tuple(filter(is_own, found.delayed)),
            no_longer_preempted=tuple(filter(is_own, found.no_longer_preempted)),
            rejected=tuple(one for one in found.rejected if one.queued.queue in self.queues),
            waiting=tuple(pair for pair in found.waiting if pair[0].queue in self.queues),
        )

    def of_names(self, names: ReaderNames) -> ReaderNames:
        """Names of the reader's own; of others the words that tell nothing."""
        if self.policies is None or self.reader is None:
            return names
        pools = set(pools_visible_to(self.reader).values_list("pk", flat=True))
        seen = tasks_seen_with_queue(self.reader).filter(pk__in=list(names.tasks))
        return replace(
            names,
            pools={pk: name for pk, name in names.pools.items() if pk in pools},
            policies={pk: name for pk, name in names.policies.items() if pk in self.policies},
            queues={pk: name for pk, name in names.queues.items() if pk in self.queues},
            tasks={str(pk): name for pk, name in seen.values_list("pk", "name")},
            other_tenants=self.other_tenants,
        )
