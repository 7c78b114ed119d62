"""Changes the rules of a user."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import BadInput, Conflict, NotFound
from apps.events.services import event_record
from apps.notices.models import NoticeKind, NoticeRule, NoticeScope, WaitLimit
from apps.notices.selectors import policies_to_notice, queues_to_notice, rules_visible_to
from apps.notices.services.event_horizon import last_event_id
from apps.notices.services.notice_maker import notice_cursor_ensure
from apps.policies.models import Policy, Queue

MOST_RULES = 20
CHANGEABLE = ("kinds", "wait_minutes", "by_email")


@transaction.atomic
def notice_rule_create(
    *,
    user: User,
    scope: str,
    kinds: Sequence[str],
    queue: Queue | None = None,
    policy: Policy | None = None,
    wait_minutes: int | None = None,
    by_email: bool = False,
) -> NoticeRule:
    """Tell the user of these events from now on.

    Raises:
        BadInput: naming the field.
        Conflict: the user has as many rules as there may be.
    """
    # Rules of one user are counted one after the other.
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if rules_visible_to(user).count() >= MOST_RULES:
        raise Conflict(f"You have {MOST_RULES} rules, the most there may be: remove or change one.")
    rule = NoticeRule(user=user, scope=scope, queue=queue, policy=policy, by_email=by_email)
    rule.after_event = last_event_id()
    _check_subject(rule)
    _set(rule, kinds=kinds, wait_minutes=wait_minutes)
    rule.save()
    notice_cursor_ensure()
    _record("notice_rule.created", rule, user, after=_facts(rule))
    return rule


@transaction.atomic
def notice_rule_change(*, user: User, rule: NoticeRule, changes: Mapping[str, Any]) -> NoticeRule:
    """Change some of `CHANGEABLE`; another queue or policy needs another rule.

    Raises:
        BadInput: naming the field.
        NotFound: it was removed meanwhile.
    """
    row = rules_visible_to(user).select_for_update().filter(pk=rule.pk).first()
    if row is None:
        raise NotFound("This rule was removed meanwhile.")
    before = _facts(row)
    kinds = changes.get("kinds", row.kinds)
    # The time goes with its kind.
    wait = row.wait_minutes if NoticeKind.WAITING in kinds else None
    row.by_email = changes.get("by_email", row.by_email)
    _set(row, kinds=kinds, wait_minutes=changes.get("wait_minutes", wait))
    if _facts(row) != before:
        row.save(update_fields=CHANGEABLE)
        _record("notice_rule.changed", row, user, before=before, after=_facts(row))
    return row


@transaction.atomic
def notice_rule_remove(*, user: User, rule: NoticeRule) -> None:
    """Remove a rule; its notices stay."""
    removed, _ = NoticeRule.objects.filter(pk=rule.pk).delete()
    if removed:
        _record("notice_rule.removed", rule, user, before=_facts(rule))


def _set(rule: NoticeRule, *, kinds: Sequence[str], wait_minutes: int | None) -> None:
    unknown = [one for one in kinds if one not in NoticeKind.values]
    if unknown or not kinds:
        raise _bad_input("kinds", f"choose one or more of {', '.join(NoticeKind.values)}")
    rule.kinds = [one for one in NoticeKind.values if one in kinds]
    waits = NoticeKind.WAITING in rule.kinds
    if waits and wait_minutes not in WaitLimit.values:
        wanted = ", ".join(map(str, WaitLimit.values))
        raise _bad_input("wait_minutes", f"waiting needs one of {wanted}")
    if not waits and wait_minutes is not None:
        raise _bad_input("wait_minutes", "is for rules with the kind waiting: leave it out")
    rule.wait_minutes = wait_minutes


def _check_subject(rule: NoticeRule) -> None:
    """Rules about tasks of others are for those who manage their queue."""
    if rule.scope not in NoticeScope.values:
        raise _bad_input("scope", f"choose one of {', '.join(NoticeScope.values)}")
    for name in (NoticeScope.QUEUE, NoticeScope.POLICY):
        given = getattr(rule, name)
        if (given is None) == (rule.scope == name):
            words = "is missing" if given is None else f"is for the scope {name}: leave it out"
            raise _bad_input(name, words)
    queue, policy = rule.queue, rule.policy
    if queue is not None and not queues_to_notice(rule.user).filter(pk=queue.pk).exists():
        raise _bad_input("queue", "choose a queue that you manage")
    if policy is not None and not policies_to_notice(rule.user).filter(pk=policy.pk).exists():
        raise _bad_input("policy", "choose a policy that you manage")


def _facts(rule: NoticeRule) -> dict[str, Any]:
    return {
        "tasks": rule.subject,
        "kinds": list(rule.kinds),
        "wait_minutes": rule.wait_minutes,
        "by_email": rule.by_email,
    }


def _record(kind: str, rule: NoticeRule, user: User, **data: Any) -> None:
    event_record(
        kind,
        actor=user,
        object_type="notice_rule",
        object_id=rule.pk,
        data={"name": rule.subject, **data},
    )


def _bad_input(field: str, words: str) -> BadInput:
    return BadInput(f"{field}: {words}.", fields={field: words})
