"""The client for programs of asyncio: every request in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from rpm_client.client import Client


class AsyncClient:
    """As `Client`: each method is awaited, and what it would yield is a list.

    async with AsyncClient(url, key=key, secret=secret) as client:
        future = await client.submit(train, 3, queue="team")
        print(await client.result(future))
    """

    def __init__(self, url: str, *, key: str = "", secret: str = "", token: str = "") -> None:
        self._client = Client(url, key=key, secret=secret, token=token)

    async def __aenter__(self) -> AsyncClient:  # noqa: PYI034 -- Self is of a later Python
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._client.close)

    async def result(self, future: Any, timeout_s: float | None = None) -> Any:
        """The result of what `submit` or `map` returned."""
        return await asyncio.to_thread(future.result, timeout_s)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def run(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(_listed, method, *args, **kwargs)

        return run


def _listed(method: Any, *args: Any, **kwargs: Any) -> Any:
    found = method(*args, **kwargs)
    return list(found) if isinstance(found, Iterator) else found
