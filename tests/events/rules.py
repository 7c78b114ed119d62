"""Rules and narrowed policies, as the walk over all services needs them."""

from apps.accounts.models import User
from apps.configuration.rules.levels import Kind, Level
from apps.configuration.rules.rule import Target
from apps.configuration.services.narrowing import policy_narrow
from apps.configuration.services.rules import Named, rule_give
from apps.policies.models import Policy
from tests.cast import Example


def narrowed(root: User, example: Example) -> Policy:
    """A policy that applies to nobody."""
    policy_narrow(actor=root, policy=example.dev, people=[])
    return example.dev


def on_dev(example: Example) -> Target:
    """The policy whose rules are written."""
    return Target(Kind.POLICY, str(example.dev.pk))


def naming(root: User) -> Named:
    """Who is named in them."""
    return Named(users=(root,))


def given(root: User, example: Example) -> Target:
    """Where there is a rule by now."""
    rule_give(actor=root, target=on_dev(example), level=Level.READ, named=naming(root))
    return on_dev(example)
