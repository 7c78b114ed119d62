"""What processes share over Redis, and what each does by itself while Redis is away."""

import time
from collections.abc import Callable
from typing import TypeVar

import redis
import structlog
from django.conf import settings

# How long an answer may take, and how long a Redis that gave none is left alone.
ANSWER_S = 0.25
LEFT_ALONE_S = 5.0

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Shared:
    """Redis as long as it answers; nobody waits for one that does not."""

    def __init__(self) -> None:
        self._client: redis.Redis | None = None
        self._away_until = 0.0

    def asked(self, ask: Callable[[redis.Redis], T], here: Callable[[], T]) -> T:
        """What Redis says, or what this process knows by itself."""
        if time.monotonic() < self._away_until:
            return here()
        try:
            answer = ask(self._redis())
        except redis.RedisError as error:
            if not self._away_until:
                log.warning("counting.alone", error=str(error))
            self._away_until = time.monotonic() + LEFT_ALONE_S
            return here()
        if self._away_until:
            log.info("counting.shared")
            self._away_until = 0.0
        return answer

    def _redis(self) -> redis.Redis:
        if self._client is None:
            self._client = redis.Redis.from_url(
                settings.REDIS_URL, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S
            )
        return self._client
