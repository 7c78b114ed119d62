"""The cache that processes share, and that of each process while Redis is away."""

from collections.abc import Iterator
from typing import Any

import pytest

from apps.core import shared_cache
from apps.core.shared_cache import SharedCache
from apps.core.shared_redis import SharedRedis


def made() -> SharedCache:
    return SharedCache("", {})


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedCache]:
    monkeypatch.setattr(shared_cache, "_shared", SharedRedis())
    cache = made()
    yield cache
    cache.clear()


@pytest.fixture
def alone(settings: Any, monkeypatch: pytest.MonkeyPatch) -> SharedCache:
    """In a process that finds no Redis."""
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(shared_cache, "_shared", SharedRedis())
    return made()


def used(cache: SharedCache) -> list[Any]:
    """What comes of everything that django-allauth does with it."""
    cache.clear()
    seen: list[Any] = [cache.add("k", [1.5, 2]), cache.add("k", "other"), cache.get("k")]
    cache.set("k", {"a": "b"}, 60)
    seen += [cache.get("k"), cache.get("none", "default"), cache.delete("k"), cache.delete("k")]
    cache.set("k", "gone", 0)
    return [*seen, cache.get("k")]


WANT = [True, False, [1.5, 2], {"a": "b"}, "default", True, False, None]


def test_it_is_a_cache_over_redis(shared: SharedCache) -> None:
    assert used(shared) == WANT


def test_it_is_a_cache_without_redis(alone: SharedCache) -> None:
    assert used(alone) == WANT


def test_processes_have_one_together(shared: SharedCache) -> None:
    other = made()
    other._here.clear()

    assert shared.add("code", "y", 60)
    assert not other.add("code", "y", 60)
    assert other.get("code") == "y"


def test_what_is_no_json_is_never_read(shared: SharedCache) -> None:
    with pytest.raises(TypeError):
        shared.set("k", object())
