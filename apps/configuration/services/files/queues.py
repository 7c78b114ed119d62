"""Queues of a configuration file, and whose tasks come first in each profile."""

from collections.abc import Mapping, Sequence
from typing import Any

from apps.accounts.models import User
from apps.configuration.services.change_records import RevisionBatch
from apps.configuration.services.files.places import at
from apps.configuration.services.files.policies import policy_named
from apps.configuration.services.queues import (
    profile_connect,
    profile_disconnect,
    queue_change,
    queue_reorder,
)
from apps.core.errors import BadInput
from apps.core.suggestions import did_you_mean
from apps.policies.document import Merged, QueueEntry
from apps.policies.models import Policy, Profile, Queue

_SETTINGS = tuple(name for name in QueueEntry.__struct_fields__ if name != "profile")
Given = tuple[str, QueueEntry]


def queues_remove(actor: User, merged: Merged, batch: RevisionBatch) -> None:
    """Close the queues that the file removes."""
    names = set(merged.removed.queues)
    rows = _live_queues().filter(name__in=names)
    for row in rows:
        with at("remove.queues"):
            batch.facts = {"queue": row.name}, {}
            profile_disconnect(actor=actor, queue=row)


def queues_apply(actor: User, merged: Merged, batch: RevisionBatch) -> None:
    """Connect profiles, and set what the file says of their queues."""
    profiles = {p.name.lower(): p for p in Profile.objects.filter(removed_at__isnull=True)}
    for index, policy in enumerate(merged.document.policies or ()):
        places = [
            (f"policies[{index}].queues[{at}]", queue)
            for at, queue in enumerate(policy.queues)
            if (policy.name.lower(), queue.profile.strip().lower()) in merged.named["queues"]
        ]
        if places:
            row = policy_named(policy.name, field=f"policies[{index}].name")
            _queues_of_policy(actor, row, places, profiles, batch)


def _queues_of_policy(
    actor: User,
    policy: Policy,
    places: Sequence[Given],
    profiles: Mapping[str, Profile],
    batch: RevisionBatch,
) -> None:
    rows = {row.profile_id: row for row in _live_queues().filter(policy=policy)}
    for path, entry in places:
        with at(path):
            profile = profiles.get(entry.profile.strip().lower())
            if profile is None:
                hint = did_you_mean(entry.profile, [one.name for one in profiles.values()])
                problem = f"there is no profile {entry.profile!r}{hint}"
                raise BadInput(f"profile: {problem}", fields={"profile": problem})
            row = rows.get(profile.pk)
            if row is None:
                batch.facts = {}, {"queue": entry.name, "profile": profile.name}
                row = profile_connect(
                    actor=actor, policy=policy, profile=profile, queue_name=entry.name or None
                )
            _queue_settings_apply(actor, row, entry, batch)


def _queue_settings_apply(actor: User, row: Queue, entry: QueueEntry, batch: RevisionBatch) -> None:
    wanted = {name: getattr(entry, name) for name in _SETTINGS}
    if not entry.name:
        del wanted["name"]
    old = {name: getattr(row, name) for name in wanted}
    changes = {name: value for name, value in wanted.items() if old[name] != value}
    if changes:
        batch.facts = {name: old[name] for name in changes}, changes
        queue_change(actor=actor, queue=row, changes=changes)


# --- orders ----------------------------------------------------------------------------------


def orders_apply(actor: User, merged: Merged, batch: RevisionBatch) -> None:
    """Put queues into the order of the file, and the policies of `queuing_order` first."""
    first = _ranks_of_policies(merged.parts.queuing_order)
    by_profile: dict[str, list[Queue]] = {}
    for queue in _live_queues().order_by("queuing_rank", "pk"):
        by_profile.setdefault(queue.profile.name.lower(), []).append(queue)
    for index, entry in enumerate(merged.document.profiles):
        queues = by_profile.get(entry.name.lower(), [])
        wanted = queues
        if entry.name.lower() in merged.named["profiles"]:
            with at(f"profiles[{index}]"):
                wanted = _in_order(queues, entry.queues)
        wanted = sorted(wanted, key=lambda one: first.get(one.policy_id, len(first)))
        if wanted != queues:
            batch.facts = _names(queues), _names(wanted)
            queue_reorder(actor=actor, profile=queues[0].profile, order=wanted)


def _live_queues() -> Any:
    rows = Queue.objects.filter(removed_at__isnull=True)
    return rows.select_related("policy", "profile").order_by("pk")


def _in_order(queues: Sequence[Queue], names: Sequence[str]) -> list[Queue]:
    """The named queues first, the others after them in their order."""
    known = {queue.name: queue for queue in queues}
    for index, name in enumerate(names):
        if name not in known:
            problem = f"{name!r} is no queue of this profile{did_you_mean(name, known)}"
            raise BadInput(f"queues: {problem}.", fields={f"queues[{index}]": problem})
    return [*(known[name] for name in names), *(q for q in queues if q.name not in names)]


def _names(queues: Sequence[Queue]) -> dict[str, list[str]]:
    return {"order": [queue.name for queue in queues]}


def _ranks_of_policies(names: Sequence[str]) -> dict[int, int]:
    """The place of each policy that is named, and of those below it."""
    if not names:
        return {}
    named = {}
    for index, name in enumerate(names):
        path = f"queuing_order[{index}]"
        row = policy_named(name, field=path)
        if row.pk in named:
            problem = f"{name!r} is listed twice"
            raise BadInput(f"{path} {problem}.", fields={path: problem})
        named[row.pk] = index
    live = Policy.objects.filter(removed_at__isnull=True)
    parents = dict(live.values_list("pk", "parent_id"))
    ranks = {}
    for pk in parents:
        above: int | None = pk
        while above is not None and above not in named:
            above = parents.get(above)
        if above is not None:
            ranks[pk] = named[above]
    return ranks
