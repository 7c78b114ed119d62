"""Django's cache, for libraries that count in it: shared by all processes over Redis.

While Redis is away each process has its own. Values are JSON: nothing that lies in Redis can make
a process that reads it run something, as pickles can.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import redis
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.core.cache.backends.locmem import LocMemCache

from apps.core.shared_redis import SharedRedis

PREFIX = "rpm:cache:"
# Django makes a cache for each thread; they have one connection together.
_shared = SharedRedis()


class SharedCache(BaseCache):
    """Over Redis, else in memory."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        self._here = LocMemCache(location or "rpm", params)

    def add(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Store the value unless there is one; return whether it was stored."""
        write = self._write(key, value, timeout, version, nx=True)
        return bool(_shared.call(write, lambda: self._here.add(key, value, timeout, version)))

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """The value of the key, else the default."""

        def query(client: redis.Redis) -> Any:
            found = client.get(self._name(key, version))
            return default if found is None else json.loads(found)

        return _shared.call(query, lambda: self._here.get(key, default, version))

    def set(
        self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        """Store the value under the key."""
        write = self._write(key, value, timeout, version, nx=False)
        _shared.call(write, lambda: self._here.set(key, value, timeout, version))

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Remove the key; return whether it existed."""

        def query(client: redis.Redis) -> bool:
            return bool(client.delete(self._name(key, version)))

        was_here = self._here.delete(key, version)
        return _shared.call(query, lambda: was_here)

    def clear(self) -> None:
        """Remove all keys; for tests."""

        def query(client: redis.Redis) -> None:
            names = list(client.scan_iter(f"{PREFIX}*"))
            if names:
                client.delete(*names)

        self._here.clear()
        _shared.call(query, lambda: None)

    def _write(
        self, key: Any, value: Any, timeout: Any, version: int | None, *, nx: bool
    ) -> Callable[[redis.Redis], Any]:
        lifetime_s = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        name, text = self._name(key, version), json.dumps(value)

        def query(client: redis.Redis) -> Any:
            if lifetime_s is None:
                return client.set(name, text, nx=nx)
            if lifetime_s <= 0:
                return client.delete(name)
            return client.set(name, text, nx=nx, px=math.ceil(lifetime_s * 1000))

        return query

    def _name(self, key: Any, version: int | None) -> str:
        return PREFIX + str(self.make_and_validate_key(key, version=version))
