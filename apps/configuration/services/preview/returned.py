"""Whose waiting tasks a change would make drafts again: made, looked at, and undone."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Count

from apps.accounts.models import User
from apps.configuration.services.narrowing import policy_narrow
from apps.configuration.services.policies import policy_change
from apps.configuration.services.rows import live_lock
from apps.policies.models import Policy
from apps.tasks.models import Task
from apps.tasks.states import TaskState


def tasks_returned_by_change(
    *, actor: User | None, policy: Policy, changes: Mapping[str, Any]
) -> list[tuple[User, int]]:
    """Whose waiting tasks would leave their queues, and how many; who has most first.

    Raises:
        Everything that `policy_change` raises.
    """
    if "group" not in changes:
        return []
    change = partial(policy_change, actor=actor, policy=policy, changes=changes)
    return _returned_by(change, policy)


def tasks_returned_by_narrowing(
    *, actor: User, policy: Policy, people: Iterable[User]
) -> list[tuple[User, int]]:
    """The same, where the policy would apply to these people alone.

    Raises:
        Everything that `policy_narrow` raises.
    """
    return _returned_by(partial(policy_narrow, actor=actor, policy=policy, people=people), policy)


def _returned_by(change: Callable[[], object], policy: Policy) -> list[tuple[User, int]]:
    with transaction.atomic():
        live_lock()
        queues = list(policy.queues.filter(removed_at__isnull=True).values_list("pk", flat=True))
        before = _waiting(queues)
        change()
        after = _waiting(queues)
        transaction.set_rollback(True)
    gone = {owner: count - after.get(owner, 0) for owner, count in before.items()}
    people = User.objects.in_bulk(owner for owner, count in gone.items() if count)
    pairs = [(people[owner], count) for owner, count in gone.items() if owner in people]
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0].pk))


def _waiting(queue_ids: list[int]) -> dict[int, int]:
    """Waiting tasks per owner, who has most first."""
    tasks = Task.objects.filter(queue__in=queue_ids, state=TaskState.QUEUED).order_by()
    counts = tasks.values_list("owner_id").annotate(count=Count("pk")).order_by("-count")
    return dict(counts)
