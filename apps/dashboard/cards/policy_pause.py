"""Whether a policy is paused, and the button that changes it."""

from dataclasses import dataclass

from apps.access.selectors import policies_changeable_by
from apps.accounts.models import User
from apps.dashboard.live import Sharing, card, key_id
from apps.policies.models import Policy


@dataclass(frozen=True, slots=True)
class PolicyPause:
    policy: Policy
    topics: tuple[str, ...]
    announce: str = ""


@card("policy_pause", Sharing.NOBODY)
def load_policy_pause(user: User, key: str) -> PolicyPause | None:
    """For those who may change the policy."""
    policy = policies_changeable_by(user).filter(pk=key_id(key)).first()
    return None if policy is None else PolicyPause(policy, topics=(f"policy.{policy.pk}",))
