"""The list of tasks that hold GPUs without using them, filtered as its form says."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Self
from urllib.parse import parse_qs, urlencode

from apps.accounts.models import User
from apps.dashboard.live import key_id
from apps.tasks.selectors.idle_attempts import IDLE_AFTER
from apps.usage.selectors.idle_attempts import IdleAttempt, IdleFilter, idle_attempts

MINUTE = timedelta(minutes=1)
# The first one is the default.
MINUTES = (IDLE_AFTER // MINUTE, 30, 60, 4 * 60, 24 * 60)


@dataclass(frozen=True, slots=True)
class IdleQuery:
    """What the list shows; unknown words fall back to the default."""

    policy: int | None = None
    queue: int | None = None
    owner: str = ""
    minutes: int = MINUTES[0]

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string such as `queue=3&minutes=60`."""
        given = {key: values[-1].strip() for key, values in parse_qs(query).items()}
        minutes = key_id(given.get("minutes", ""))
        return cls(
            policy=key_id(given.get("policy", "")) or None,
            queue=key_id(given.get("queue", "")) or None,
            owner=given.get("owner", "")[:150].replace("\0", ""),
            minutes=minutes if minutes in MINUTES else MINUTES[0],
        )

    def query(self) -> str:
        """As a query string; what has its default is left out."""
        values = {
            "policy": str(self.policy or ""),
            "queue": str(self.queue or ""),
            "owner": self.owner,
            "minutes": "" if self.minutes == MINUTES[0] else str(self.minutes),
        }
        return urlencode({key: value for key, value in values.items() if value})

    def tasks(self, user: User) -> list[IdleAttempt]:
        """What the person sees of them, the most idle GPU time first."""
        wanted = IdleFilter(self.policy, self.queue, self.owner)
        return idle_attempts(user, wanted, after=self.minutes * MINUTE)
