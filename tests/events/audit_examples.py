"""Rules, restricted policies, rates and tasks, as the walk over all services needs them."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.configuration.services.restrictions import policy_restrict
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.notices.models import NoticeRule
from apps.notices.services.rules import notice_rule_create
from apps.policies.models import Policy
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec
from apps.usage.models import Rate
from apps.usage.services.rates import rate_create
from tests.people import Example

RATE: dict[str, Any] = {"price": Decimal(2), "valid_from": datetime(2100, 1, 1, tzinfo=UTC)}


def restricted_policy(root: User, example: Example) -> Policy:
    """A policy that applies to nobody."""
    policy_restrict(actor=root, policy=example.dev, people=[])
    return example.dev


def dev_target(example: Example) -> Target:
    """The policy whose rules are written."""
    return Target(RuleKind.POLICY, str(example.dev.pk))


def named_root(root: User) -> RuleSubjects:
    """Who is named in them."""
    return RuleSubjects(users=(root,))


def new_rule(root: User, example: Example) -> dict[str, Any]:
    """A rule for the policy."""
    subjects = named_root(root)
    return {"target": dev_target(example), "level": Level.READ, "subjects": subjects}


def target_with_rule(root: User, example: Example) -> Target:
    """Where there is a rule by now."""
    rule_grant(actor=root, target=dev_target(example), level=Level.READ, subjects=named_root(root))
    return dev_target(example)


def idle_exemption(root: User, example: Example) -> dict[str, Any]:
    """A waiting task that may be idle."""
    spec = TaskSpec(name="idle", queue=example.dev_queue.name, command=["true"])
    return {"task": task_submit(actor=root, spec=spec), "is_exempt": True}


def notice_rule(root: User) -> NoticeRule:
    """A rule of an administrator."""
    return notice_rule_create(user=root, scope="own", kinds=["failed"])


def rate_of(root: User) -> Rate:
    """A rate that is not in force."""
    return rate_create(actor=root, **RATE)
