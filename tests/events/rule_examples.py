"""Rules and restricted policies, as the walk over all services needs them."""

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.configuration.services.restrictions import policy_restrict
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.policies.models import Policy
from tests.people import Example


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


def target_with_rule(root: User, example: Example) -> Target:
    """Where there is a rule by now."""
    rule_grant(actor=root, target=dev_target(example), level=Level.READ, subjects=named_root(root))
    return dev_target(example)
