"""Connects profiles to policies, and changes the queues in between."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max
from django.utils import timezone
from django.utils.text import slugify

from apps.access.selectors import profiles_connectable_by
from apps.accounts.models import User
from apps.accounts.selectors import tenants_administered_by
from apps.configuration.services.change_records import change_record
from apps.configuration.services.drafts import draft_save_record
from apps.configuration.services.limits import above_limit, limits_above
from apps.configuration.services.pools import pause_facts
from apps.configuration.services.queue_closure import queues_close
from apps.configuration.services.rows import draft_lock, live_lock
from apps.configuration.services.tenant_checks import (
    QUEUE_SETTINGS,
    is_tenant_admin_only,
    queue_settings_check,
    queue_settings_of,
)
from apps.core.errors import BadInput, Conflict
from apps.core.model_errors import from_model_error
from apps.events.services import undo_check
from apps.policies.models import DraftProfile, DraftQueueRank, Policy, Profile, Queue


def queue_name_suggest(*, policy: Policy, profile: Profile) -> str:
    """`<policy>-<profile>` in the characters that a queue's name may have, not taken yet."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", slugify(f"{policy.name}-{profile.name}"))
    base = plain.strip("-._")[:63] or f"queue-{policy.pk}-{profile.pk}"
    if not any(map(str.isalpha, base)):
        base = f"queue-{base}"[:63]
    taken = set(
        Queue.objects.filter(removed_at__isnull=True, name__startswith=base[:58]).values_list(
            "name", flat=True
        )
    )
    names = [base, *(f"{base[:58]}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


@transaction.atomic
def profile_connect(
    *, actor: User | None, policy: Policy, profile: Profile, queue_name: str | None = None
) -> Queue:
    """Make the queue, last in the profile's order; users of the policy may use it.

    A profile that the policy had before gets the settings of its last queue again. Settings that
    are not the actor's to set are the strictest of the policy's queues where the profile is new to
    it, and of the tenant's queues of the profile.

    Args:
        queue_name: None takes the suggested one.

    Raises:
        BadInput: the name is taken or not allowed, the profile is above the policy's limit, or
            it gives what an administrator of a tenant cannot give it.
        NotAllowed: the actor administers neither queues nor a tenant.
        Conflict: the policy has children, is connected already, or one of the two was removed.
    """
    _check_name(queue_name or "")
    live_lock()
    policy = Policy.objects.select_related("group").get(pk=policy.pk)
    profile = Profile.objects.get(pk=profile.pk)
    _check_allowed(actor, profile)
    _check_connection(policy, profile)
    if queue_name is None:
        queue_name = queue_name_suggest(policy=policy, profile=profile)
    live = Queue.objects.filter(profile=profile, removed_at__isnull=True)
    queue = Queue(
        name=queue_name, policy=policy, profile=profile, queuing_rank=_after(live, "queuing_rank")
    )
    queue_settings_check(actor, queue, set())
    for field, value in _previous_settings(actor, queue).items():
        setattr(queue, field, value)
    _save(queue)
    _append_to_draft(queue, actor)
    note = f"Profile {profile.name} connected to policy {policy.name} as {queue.name}."
    _record("queue.created", queue, actor=actor, note=note)
    return queue


@transaction.atomic
def profile_disconnect(*, actor: User | None, queue: Queue) -> int:
    """Close the queue: grants go, waiting tasks become drafts, running ones finish.

    Returns:
        How many tasks became drafts.

    Raises:
        NotAllowed: the actor administers neither queues nor a tenant.
    """
    live_lock()
    queue = _live_queue(queue)
    queue_settings_check(actor, queue, set())
    if DraftQueueRank.objects.filter(queue=queue).exists():
        draft_save_record(draft_lock(), actor=actor, changes=[f"queue {queue.name} closed"])
    reason = f"Profile {queue.profile.name} was removed from policy {queue.policy.name}."
    returned = queues_close(queues=[queue], actor=actor, reason=reason)
    _record("queue.removed", queue, actor=actor, note=reason)
    return returned


@transaction.atomic
def queue_change(*, actor: User | None, queue: Queue, changes: Mapping[str, Any]) -> Queue:
    """Change settings or the name; the id stays.

    Raises:
        BadInput: naming the field.
        Conflict: the queue was removed.
    """
    unknown = set(changes) - QUEUE_SETTINGS
    if unknown:
        raise BadInput(f"{min(unknown)} cannot be changed.", fields={min(unknown): "is unknown"})
    live_lock()
    queue = _live_queue(queue)
    queue_settings_check(actor, queue, set(changes))
    if changes.get("name", queue.name) != queue.name:
        _check_name(str(changes["name"]))
    for field, value in changes.items():
        setattr(queue, field, value)
    _save(queue)
    if "name" in changes and DraftQueueRank.objects.filter(queue=queue).exists():
        # The draft's document names the queue, so its readers have an old version now.
        draft_save_record(draft_lock(), actor=actor, changes=[f"the name of queue {queue.name}"])
    note = f"Queue {queue.name} changed: {', '.join(sorted(changes))}."
    _record("queue.changed", queue, actor=actor, note=note, data={"fields": sorted(changes)})
    return queue


def queue_rename(*, actor: User | None, queue: Queue, name: str) -> Queue:
    """Rename the queue."""
    return queue_change(actor=actor, queue=queue, changes={"name": name})


@transaction.atomic
def queue_reorder(
    *, actor: User | None, profile: Profile, order: Sequence[Queue]
) -> Sequence[Queue]:
    """Set whose tasks come first in a profile, live and in the draft.

    Args:
        order: every queue of the profile exactly once; from administrators of a tenant every one
            of theirs, which change places with one another and leave the others' alone.

    Raises:
        BadInput: a queue is missing, foreign or named twice.
    """
    live_lock()
    queues = {
        queue.pk: queue
        for queue in Queue.objects.filter(profile=profile, removed_at__isnull=True).select_related(
            "profile", "policy"
        )
    }
    own = {pk for pk, queue in queues.items() if _may_order(actor, queue)}
    wanted = [queue.pk for queue in order]
    if sorted(wanted) != sorted(own):
        problem = f"must name each queue of profile {profile.name} exactly once"
        raise BadInput(f"order {problem}.", fields={"order": problem})
    turns = iter(wanted)
    known = sorted(queues.values(), key=lambda queue: (queue.queuing_rank, queue.pk))
    ordered = [queues[next(turns)] if queue.pk in own else queue for queue in known]
    for rank, queue in enumerate(ordered):
        queue.queuing_rank = rank
    Queue.objects.bulk_update(ordered, ["queuing_rank"])
    _reorder_draft(profile, ordered, actor)
    names = ", ".join(queue.name for queue in ordered)
    if ordered:
        note = f"Order of profile {profile.name}: {names}."
        _record("queue.reordered", ordered[0], actor=actor, note=note, data={"order": wanted})
    return ordered


@transaction.atomic
def queue_pause(*, actor: User | None, queue: Queue, reason: str) -> Queue:
    """Pause the queue: nothing is admitted until it is resumed; running tasks go on."""
    live_lock()
    queue = _live_queue(queue)
    before = pause_facts(queue)
    queue.paused_at = queue.paused_at or timezone.now()
    queue.pause_reason = reason
    _save(queue)
    note = f"Queue {queue.name} paused. {reason}".strip()
    details = {"reason": reason, "before": before, "after": pause_facts(queue)}
    _record("queue.paused", queue, actor=actor, note=note, data=details)
    return queue


@transaction.atomic
def queue_resume(*, actor: User | None, queue: Queue, undoes: int | None = None) -> Queue:
    """Lift the pause; with `undoes`, the event of a pause, only if it is the last one."""
    live_lock()
    queue = _live_queue(queue)
    undo_check(undoes, object_type="queue", object_id=queue.pk, name=queue.name)
    before = pause_facts(queue)
    queue.paused_at, queue.pause_reason = None, ""
    _save(queue)
    details = {"before": before, "after": pause_facts(queue)}
    _record("queue.resumed", queue, actor=actor, note=f"Queue {queue.name} resumed.", data=details)
    return queue


# --- parts -----------------------------------------------------------------------------------


def _live_queue(queue: Queue) -> Queue:
    row = Queue.objects.select_related("profile", "policy").get(pk=queue.pk)
    if row.is_removed:
        raise Conflict(f"Queue {row.name} was removed.")
    return row


def _may_order(actor: User | None, queue: Queue) -> bool:
    if actor is None or not is_tenant_admin_only(actor):
        return True
    return queue.policy.tenant_id in tenants_administered_by(actor)


def _check_name(name: str) -> None:
    """Refuse a name of digits: queues are addressed by id as well, so it could mean another one."""
    if name and not any(map(str.isalpha, name)):
        problem = "needs at least one letter"
        raise BadInput(f"The name {problem}.", fields={"name": problem})


def _save(queue: Queue) -> None:
    try:
        queue.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    queue.save()


def _check_allowed(actor: User | None, profile: Profile) -> None:
    if actor is None or not is_tenant_admin_only(actor):
        return
    if not profiles_connectable_by(actor).filter(pk=profile.pk).exists():
        problem = "gives more than resources: an administrator of the installation connects it"
        raise BadInput(f"{profile.name} {problem}.", fields={"profile": problem})


def _check_connection(policy: Policy, profile: Profile) -> None:
    for thing in (policy, profile):
        if thing.is_removed:
            raise Conflict(f"{thing.name} was removed.", fields={"profile": "was removed"})
    if policy.children.filter(removed_at__isnull=True).exists():
        detail = f"Policy {policy.name} has children; only policies without have queues."
        raise Conflict(detail, fields={"policy": "has children"})
    if Queue.objects.filter(policy=policy, profile=profile, removed_at__isnull=True).exists():
        detail = f"Profile {profile.name} is connected to policy {policy.name} already."
        raise Conflict(detail, fields={"profile": "is connected already"})
    problem = above_limit(profile, limits_above(policy))
    if problem:
        raise BadInput(f"{problem}.", fields={"profile": problem})


def _previous_settings(actor: User | None, queue: Queue) -> dict[str, Any]:
    """The settings that a new queue inherits, so that closing and connecting again keeps them.

    Those that the actor may not set are not less strict than the tenant's other queues of the
    profile have them: another policy for the same group is no way around them.
    """
    settings = QUEUE_SETTINGS - {"name"}
    not_theirs = settings - queue_settings_of(actor, queue)
    earlier = Queue.objects.filter(policy=queue.policy)
    last = earlier.filter(profile=queue.profile).order_by("-pk").first()
    found = {} if last is None else {name: getattr(last, name) for name in settings}
    # Without any before, the defaults: no queue gets more than these from others.
    others = [last] if last is not None else [*earlier] or [queue]
    if queue.policy.tenant_id is not None:
        of_tenant = Queue.objects.filter(policy__tenant=queue.policy.tenant_id)
        others += of_tenant.filter(profile=queue.profile)
    return found | {
        name: _strictest(name, [getattr(one, name) for one in others]) for name in not_theirs
    }


def _strictest(name: str, values: Sequence[Any]) -> Any:
    """None is no limit: of waiting tasks, and of how often a task is preempted."""
    given = [value for value in values if value is not None]
    if name == "max_preemptions":
        return max(given) if len(given) == len(values) else None
    return min(given, default=None)


def _after(rows: Any, column: str) -> int:
    last = rows.aggregate(last=Max(column))["last"]
    return 0 if last is None else last + 1


def _append_to_draft(queue: Queue, actor: User | None) -> None:
    draft = DraftProfile.objects.filter(key=queue.profile.key).first()
    if draft is None:
        return
    state = draft_lock()
    rank = _after(DraftQueueRank.objects.filter(profile=draft), "rank")
    DraftQueueRank.objects.create(profile=draft, queue=queue, rank=rank)
    draft_save_record(
        state, actor=actor, changes=[f"queue {queue.name} of profile {draft.name} added"]
    )


def _reorder_draft(profile: Profile, ordered: Sequence[Queue], actor: User | None) -> None:
    draft = DraftProfile.objects.filter(key=profile.key).first()
    if draft is None:
        return
    state = draft_lock()
    DraftQueueRank.objects.filter(queue__in=ordered).delete()
    DraftQueueRank.objects.bulk_create(
        DraftQueueRank(profile=draft, queue=queue, rank=rank) for rank, queue in enumerate(ordered)
    )
    draft_save_record(state, actor=actor, changes=[f"order of profile {draft.name}"])


def _record(
    kind: str,
    queue: Queue,
    *,
    actor: User | None,
    note: str,
    data: Mapping[str, Any] | None = None,
) -> None:
    change_record(
        kind,
        actor=actor,
        object_type="queue",
        object_id=queue.pk,
        policy_id=queue.policy_id,
        queue_id=queue.pk,
        note=note[:1000],
        data={"name": queue.name, **(data or {})},
        topics=[f"queue.{queue.pk}", f"policy.{queue.policy_id}", "queues", "policies"],
    )
