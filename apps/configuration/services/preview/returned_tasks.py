"""Finds the owners whose waiting tasks a change would return to drafts, by a rolled-back change."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Count

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change
from apps.configuration.services.restrictions import policy_restrict
from apps.configuration.services.rows import live_lock
from apps.policies.models import Policy
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task


def tasks_returned_by_change(
    *, actor: User | None, policy: Policy, changes: Mapping[str, Any]
) -> list[tuple[User, int]]:
    """The owners whose waiting tasks would leave their queues, with counts, highest first.

    Raises:
        Everything that `policy_change` raises.
    """
    if "group" not in changes:
        return []
    change = partial(policy_change, actor=actor, policy=policy, changes=changes)
    return _returned_tasks(change, policy)


def tasks_returned_by_restriction(
    *, actor: User, policy: Policy, people: Iterable[User]
) -> list[tuple[User, int]]:
    """The same, if the policy were restricted to these people.

    Raises:
        Everything that `policy_restrict` raises.
    """
    return _returned_tasks(
        partial(policy_restrict, actor=actor, policy=policy, people=people), policy
    )


def _returned_tasks(change: Callable[[], object], policy: Policy) -> list[tuple[User, int]]:
    with transaction.atomic():
        live_lock()
        queues = list(policy.queues.filter(removed_at__isnull=True).values_list("pk", flat=True))
        before = _waiting_counts(queues)
        change()
        after = _waiting_counts(queues)
        transaction.set_rollback(True)
    lost = {owner: count - after.get(owner, 0) for owner, count in before.items()}
    people = User.objects.in_bulk(owner for owner, count in lost.items() if count)
    pairs = [(people[owner], count) for owner, count in lost.items() if owner in people]
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0].pk))


def _waiting_counts(queue_ids: list[int]) -> dict[int, int]:
    """Waiting tasks per owner, highest count first."""
    tasks = Task.objects.filter(queue__in=queue_ids, state=TaskState.QUEUED).order_by()
    counts = tasks.values_list("owner_id").annotate(count=Count("pk")).order_by("-count")
    return dict(counts)
