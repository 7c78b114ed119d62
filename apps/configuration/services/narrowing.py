"""Letting a policy apply to some of its group instead of all."""

from collections.abc import Iterable

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.services.groups import rights_changed
from apps.configuration.rules.narrowed import (
    narrowing_version,
    people_choosable_by,
    people_chosen,
)
from apps.configuration.services.grants import policy_grants_sync, tasks_of_others_return
from apps.configuration.services.recording import change_record
from apps.configuration.services.rows import live_lock
from apps.core.errors import BadInput, Conflict, NotAllowed, Stale
from apps.policies.models import Policy, PolicyChosen
from apps.policies.selectors import policies_managed_by, policies_narrowable_by

MOST_NAMED = 50


@transaction.atomic
def policy_narrow(
    *, actor: User, policy: Policy, people: Iterable[User], version: str | None = None
) -> int:
    """Let the policy apply to these people and service accounts of its group alone.

    Whom nobody chose no longer sees it by the membership; where no rule lets them in otherwise,
    what they have waiting becomes drafts. With nobody chosen it applies to nobody.

    Returns:
        How many tasks became drafts.

    Raises:
        BadInput: somebody is not in the group, or nobody whom the actor may name.
        Conflict: the policy was removed.
        NotAllowed: the actor neither administers nor manages the policy, or it is a tenant's top.
        Stale: it does not apply to those of this version any more.
    """
    live_lock()
    policy = _present(actor, policy, version)
    wanted = {user.pk: user for user in people}
    known = (people_choosable_by(actor, policy), people_chosen(policy))
    inside = {pk for rows in known for pk in rows.values_list("pk", flat=True)}
    strangers = sorted(user.username for pk, user in wanted.items() if pk not in inside)
    if strangers:
        problem = f"{', '.join(strangers[:5])}: not in group {policy.group.name}"
        raise BadInput(f"people: {problem}.", fields={"people": problem})
    before = _facts(policy)
    PolicyChosen.objects.filter(policy=policy).exclude(user__in=wanted).delete()
    PolicyChosen.objects.bulk_create(
        (PolicyChosen(policy=policy, user_id=pk) for pk in sorted(wanted)), ignore_conflicts=True
    )
    policy.is_narrowed = True
    return _apply(actor, policy, before)


@transaction.atomic
def policy_widen(*, actor: User, policy: Policy, version: str | None = None) -> None:
    """Let the policy apply to its whole group again.

    Raises:
        Conflict: the policy was removed.
        NotAllowed: the actor neither administers nor manages the policy, or it is a tenant's top.
        Stale: it does not apply to those of this version any more.
    """
    live_lock()
    policy = _present(actor, policy, version)
    before = _facts(policy)
    PolicyChosen.objects.filter(policy=policy).delete()
    policy.is_narrowed = False
    _apply(actor, policy, before)


def _present(actor: User, policy: Policy, version: str | None) -> Policy:
    """The row as it is now that the live side is locked."""
    row = Policy.objects.select_related("group").get(pk=policy.pk)
    if row.is_removed:
        raise Conflict(f"Policy {row.name} was removed.")
    if not policies_managed_by(actor).filter(pk=row.pk).exists():
        raise NotAllowed("This is for administrators and those who manage the policy.")
    if not policies_narrowable_by(actor).filter(pk=row.pk).exists():
        raise NotAllowed(f"{row.name} is for administrators of the installation.")
    if version is not None and version != narrowing_version(row):
        raise Stale("Somebody changed to whom it applies meanwhile: look at it again.")
    return row


def _apply(actor: User, policy: Policy, before: dict[str, object]) -> int:
    """Store it, make the grants true, and drop what those have waiting who lost their right."""
    policy.save(update_fields=["is_narrowed"])
    policy_grants_sync(policies=[policy], actor=actor)
    reason = f"Policy {policy.name} does not apply to you any more."
    returned = tasks_of_others_return(policy=policy, reason=reason)
    after = _facts(policy)
    if before == after:
        return returned
    change_record(
        "policy.narrowed" if policy.is_narrowed else "policy.widened",
        actor=actor,
        object_type="policy",
        object_id=policy.pk,
        policy_id=policy.pk,
        note=f"To whom policy {policy.name} applies.",
        data={"name": policy.name, "tasks_returned": returned, "before": before, "after": after},
        topics=[f"policy.{policy.pk}", "policies", "queues"],
    )
    # Of all, and not only of those who came or went: the page of the policy names them.
    members = User.objects.filter(groups=policy.group_id)
    rights_changed(members.values_list("pk", flat=True))
    return returned


def _facts(policy: Policy) -> dict[str, object]:
    """To whom it applies, by name."""
    if not policy.is_narrowed:
        return {"applies_to": f"group {policy.group.name}"}
    names = PolicyChosen.objects.filter(policy=policy).values_list("user__username", flat=True)
    told = sorted(names)
    more = [f"and {len(told) - MOST_NAMED} more"] if len(told) > MOST_NAMED else []
    return {"applies_to": [*told[:MOST_NAMED], *more]}
