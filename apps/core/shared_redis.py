"""State that processes share over Redis, or keep for themselves while Redis is away."""

import time
from collections.abc import Callable
from typing import TypeVar

import redis
import structlog
from django.conf import settings

# How long an answer may take, and how long a Redis that gave none is left alone.
ANSWER_S = 0.25
RETRY_AFTER_S = 5.0

log = structlog.get_logger(__name__)

T = TypeVar("T")


class SharedRedis:
    """Redis as long as it answers; no caller waits for one that does not."""

    def __init__(self) -> None:
        self._client: redis.Redis | None = None
        self._away_until = 0.0

    def call(self, query: Callable[[redis.Redis], T], fallback: Callable[[], T]) -> T:
        """The value from Redis, or this process's own while Redis is away."""
        if time.monotonic() < self._away_until:
            return fallback()
        try:
            answer = query(self._redis())
        except redis.RedisError as error:
            if not self._away_until:
                log.warning("redis.unavailable", error=str(error))
            self._away_until = time.monotonic() + RETRY_AFTER_S
            return fallback()
        if self._away_until:
            log.info("redis.available")
            self._away_until = 0.0
        return answer

    def _redis(self) -> redis.Redis:
        if self._client is None:
            self._client = redis.Redis.from_url(
                settings.REDIS_URL, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S
            )
        return self._client
