"""Closes queues, for provisioning, disconnecting and removing a policy."""

from collections.abc import Sequence

from django.utils import timezone

from apps.access.levels import resource_of
from apps.accounts.models import User
from apps.accounts.services.groups import permissions_change_notify
from apps.core.notifications import after_commit
from apps.events.services import NewEvent, events_record
from apps.policies.models import DraftQueueRank, Policy, PolicyMember, Pool, Queue
from apps.tasks.services.stop import tasks_return_to_draft


def rules_remove(model: type[Policy | Pool | Queue], ids: Sequence[int]) -> None:
    """Remove the rules of removed objects; open pages of their subjects reload."""
    resource = resource_of(model)
    users = resource.by_user._default_manager.filter(content_object__in=ids)
    groups = resource.by_group._default_manager.filter(content_object__in=ids)
    named = set(users.values_list("user_id", flat=True))
    members = User.objects.filter(groups__in=groups.values("group")).values_list("pk", flat=True)
    permissions_change_notify(sorted({*named, *members}))
    users.delete()
    groups.delete()
    if model is Policy:
        PolicyMember.objects.filter(policy__in=ids).delete()


def queues_close(*, queues: Sequence[Queue], actor: User | None, reason: str) -> int:
    """Close queues: grants go, waiting tasks become drafts of their owners, running ones finish.

    Args:
        reason: what the owners of the waiting tasks read, a sentence.

    Returns:
        How many tasks became drafts.
    """
    ids = [queue.pk for queue in queues]
    if not ids:
        return 0
    # First, so that a task that is just being enqueued finds its queue closed.
    Queue.objects.filter(pk__in=ids).update(removed_at=timezone.now())
    rules_remove(Queue, ids)
    DraftQueueRank.objects.filter(queue__in=ids).delete()
    returned = 0
    entries = []
    for queue in queues:
        count = tasks_return_to_draft(queue_ids=[queue.pk], reason=reason)
        returned += count
        entries.append(
            NewEvent(
                kind="queue.closed",
                object_type="queue",
                object_id=queue.pk,
                queue_id=queue.pk,
                policy_id=queue.policy_id,
                actor_id=actor.pk if actor is not None else None,
                data={"name": queue.name, "reason": reason, "tasks_returned": count},
                is_audited=actor is not None,
            )
        )
    events_record(entries)
    after_commit(topics=[f"queue.{pk}" for pk in ids])
    return returned
