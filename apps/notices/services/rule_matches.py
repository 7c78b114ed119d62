"""Which rules match which events, by the permissions that their users have now."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import Q

from apps.access.selectors import queues_managed_by
from apps.notices.models import NoticeKind, NoticeRule, NoticeScope

# Events of tasks that rules can match.
KIND_OF_EVENT: Final = {
    "task.running": NoticeKind.STARTED,
    "task.completed": NoticeKind.ENDED,
    "task.aborted": NoticeKind.ENDED,
    "task.failed": NoticeKind.FAILED,
    "task.rejected": NoticeKind.FAILED,
    "task.preempted": NoticeKind.PREEMPTED,
    "task.paused": NoticeKind.PAUSED,
}


@dataclass(frozen=True, slots=True)
class TaskFact:
    """Something that happened to a task of this owner, in this queue and policy.

    `event_id` is None for a task that still waits: no event says so.
    """

    kind: str
    event_id: int | None
    at: datetime
    task_id: UUID
    owner_id: int
    queue_id: int | None
    policy_id: int | None


@dataclass(slots=True)
class RuleIndex:
    """The rules that can match some facts, by what they are about."""

    by_owner: dict[int, list[NoticeRule]] = field(default_factory=lambda: defaultdict(list))
    by_queue: dict[int, list[NoticeRule]] = field(default_factory=lambda: defaultdict(list))
    by_policy: dict[int, list[NoticeRule]] = field(default_factory=lambda: defaultdict(list))
    # By user, those of the queues that the user manages.
    managed: dict[int, frozenset[int]] = field(default_factory=dict)
    queues: frozenset[int] = frozenset()

    def matching(self, fact: TaskFact) -> dict[int, list[NoticeRule]]:
        """By user, their rules that match this."""
        found: dict[int, list[NoticeRule]] = {}
        for rule in self._candidates(fact):
            is_later = fact.event_id is None or fact.event_id > rule.after_event
            if fact.kind in rule.kinds and is_later:
                found.setdefault(rule.user_id, []).append(rule)
        return found

    def _candidates(self, fact: TaskFact) -> Iterable[NoticeRule]:
        yield from self.by_owner.get(fact.owner_id, ())
        for rule in (
            *self.by_queue.get(fact.queue_id or 0, ()),
            *self.by_policy.get(fact.policy_id or 0, ()),
        ):
            if fact.queue_id in self._managed_by(rule):
                yield rule

    def _managed_by(self, rule: NoticeRule) -> frozenset[int]:
        if rule.user_id not in self.managed:
            queues = queues_managed_by(rule.user).filter(pk__in=self.queues)
            self.managed[rule.user_id] = frozenset(queues.values_list("pk", flat=True))
        return self.managed[rule.user_id]


def rules_for(facts: Sequence[TaskFact]) -> RuleIndex:
    """The rules that can match these facts, in one query."""
    queues = {one.queue_id for one in facts if one.queue_id is not None}
    about = (
        Q(scope=NoticeScope.OWN, user__in={one.owner_id for one in facts})
        | Q(queue__in=queues)
        | Q(policy__in={one.policy_id for one in facts if one.policy_id is not None})
    )
    index = RuleIndex(queues=frozenset(queues))
    rules = NoticeRule.objects.filter(about, user__is_active=True).select_related("user")
    for rule in rules.order_by("pk"):
        if rule.queue_id is not None:
            index.by_queue[rule.queue_id].append(rule)
        elif rule.policy_id is not None:
            index.by_policy[rule.policy_id].append(rule)
        else:
            index.by_owner[rule.user_id].append(rule)
    return index
