"""Notifications, taken from the broker and handed back late, doubled, out of order."""

import random
from contextlib import suppress
from dataclasses import dataclass, field

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

QUEUE = "celery"
MOST = 500


@dataclass(slots=True)
class MessageInterceptor:
    """Takes messages as a worker would, and knows some from before."""

    port: int
    kept: list[bytes] = field(default_factory=list)

    def take(self, *, seconds: float) -> list[bytes]:
        """What could be had before the workers had it."""
        taken: list[bytes] = []
        with suppress(redis.RedisError), self._client(seconds) as client:
            while len(taken) < MOST:
                found = client.brpop([QUEUE], timeout=max(seconds, 0.05))
                if found is None:
                    break
                taken.append(found[1])
                seconds = 0.05
        self.kept = (self.kept + taken)[-MOST:]
        return taken

    def give(self, messages: list[bytes]) -> int:
        """Put them into the queue; how many that were."""
        with suppress(redis.RedisError), self._client(1) as client:
            for message in messages:
                client.lpush(QUEUE, message)
            return len(messages)
        return 0

    def double(self, rng: random.Random) -> int:
        """Send old messages again, each twice."""
        chosen = rng.sample(self.kept, min(len(self.kept), 10))
        return self.give([message for message in chosen for _ in range(2)])

    def _client(self, seconds: float) -> redis.Redis:
        # Without the client's own retries, which would wait for a Redis that is paused on purpose.
        never = Retry(NoBackoff(), 0)
        return redis.Redis(
            port=self.port, socket_timeout=seconds + 1, socket_connect_timeout=1, retry=never
        )
