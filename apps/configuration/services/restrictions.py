"""Restricts a policy to some members of its group."""

from collections.abc import Iterable

from django.db import transaction

from apps.access.selectors import policies_managed_by, policies_restrictable_by
from apps.accounts.models import User
from apps.accounts.services.groups import permissions_change_notify
from apps.configuration.restrictions import (
    restrictable_members,
    restricted_members,
    restriction_version,
)
from apps.configuration.services.change_records import change_record
from apps.configuration.services.grants import policy_grants_sync, tasks_return_without_permission
from apps.configuration.services.rows import live_lock
from apps.core.errors import BadInput, Conflict, NotAllowed, Stale
from apps.policies.models import Policy, PolicyMember

MOST_NAMED = 50


@transaction.atomic
def policy_restrict(
    *, actor: User, policy: Policy, people: Iterable[User], version: str | None = None
) -> int:
    """Restrict the policy to these people and service accounts of its group.

    Other users of the group no longer see it because of the group; unless a rule gives them access,
    their waiting tasks become drafts. Without members it applies to nobody.

    Returns:
        How many tasks became drafts.

    Raises:
        BadInput: a user is not in the group, or the actor may not name them.
        Conflict: the policy was removed.
        NotAllowed: the actor neither administers nor manages the policy, or it is a tenant's top.
        Stale: it does not apply to those of this version any more.
    """
    live_lock()
    policy = _restrictable_policy(actor, policy, version)
    wanted = {user.pk: user for user in people}
    known = (restrictable_members(actor, policy), restricted_members(policy))
    eligible = {pk for rows in known for pk in rows.values_list("pk", flat=True)}
    unknown = sorted(user.username for pk, user in wanted.items() if pk not in eligible)
    if unknown:
        problem = f"{', '.join(unknown[:5])}: not in group {policy.group.name}"
        raise BadInput(f"people: {problem}.", fields={"people": problem})
    before = _facts(policy)
    PolicyMember.objects.filter(policy=policy).exclude(user__in=wanted).delete()
    PolicyMember.objects.bulk_create(
        (PolicyMember(policy=policy, user_id=pk) for pk in sorted(wanted)), ignore_conflicts=True
    )
    policy.is_restricted = True
    return _apply(actor, policy, before)


@transaction.atomic
def policy_unrestrict(*, actor: User, policy: Policy, version: str | None = None) -> None:
    """Apply the policy to its whole group again.

    Raises:
        Conflict: the policy was removed.
        NotAllowed: the actor neither administers nor manages the policy, or it is a tenant's top.
        Stale: it does not apply to those of this version any more.
    """
    live_lock()
    policy = _restrictable_policy(actor, policy, version)
    before = _facts(policy)
    PolicyMember.objects.filter(policy=policy).delete()
    policy.is_restricted = False
    _apply(actor, policy, before)


def _restrictable_policy(actor: User, policy: Policy, version: str | None) -> Policy:
    """The row as it is now that the live side is locked."""
    row = Policy.objects.select_related("group").get(pk=policy.pk)
    if row.is_removed:
        raise Conflict(f"Policy {row.name} was removed.")
    if not policies_managed_by(actor).filter(pk=row.pk).exists():
        raise NotAllowed("This is for administrators and those who manage the policy.")
    if not policies_restrictable_by(actor).filter(pk=row.pk).exists():
        raise NotAllowed(f"{row.name} is for administrators of the installation.")
    if version is not None and version != restriction_version(row):
        raise Stale("Another user has changed this restriction meanwhile. Reload and try again.")
    return row


def _apply(actor: User, policy: Policy, before: dict[str, object]) -> int:
    """Store it, update the grants, and make drafts of waiting tasks without permission."""
    policy.save(update_fields=["is_restricted"])
    policy_grants_sync(policies=[policy], actor=actor)
    reason = f"Policy {policy.name} does not apply to you any more."
    returned = tasks_return_without_permission(policy=policy, reason=reason)
    after = _facts(policy)
    if before == after:
        return returned
    change_record(
        "policy.restricted" if policy.is_restricted else "policy.unrestricted",
        actor=actor,
        object_type="policy",
        object_id=policy.pk,
        policy_id=policy.pk,
        note=f"To whom policy {policy.name} applies.",
        data={"name": policy.name, "tasks_returned": returned, "before": before, "after": after},
        topics=[f"policy.{policy.pk}", "policies", "queues"],
    )
    # Of all members, not only of added and removed ones: the page of the policy names them.
    members = User.objects.filter(groups=policy.group_id)
    permissions_change_notify(members.values_list("pk", flat=True))
    return returned


def _facts(policy: Policy) -> dict[str, object]:
    """To whom it applies, by name."""
    if not policy.is_restricted:
        return {"applies_to": f"group {policy.group.name}"}
    names = PolicyMember.objects.filter(policy=policy).values_list("user__username", flat=True)
    shown = sorted(names)
    more = [f"and {len(shown) - MOST_NAMED} more"] if len(shown) > MOST_NAMED else []
    return {"applies_to": [*shown[:MOST_NAMED], *more]}
