"""Stands between the control plane and PostgreSQL, and loses the answers of commits when asked.

The statement is carried out; the connection is cut before its client hears so. Runs in a thread
with its own event loop.
"""

import asyncio
import random
import threading
from contextlib import suppress

# A simple query "COMMIT" as the protocol writes it: kind, length, text, NUL.
COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
# The tag of a commit that was carried out.
DONE = b"C\x00\x00\x00\x0bCOMMIT\x00"
CHUNK = 64 * 1024


class CommitProxy:
    """`port` leads to the server's `port`; while `is_losing`, some commits lose their answer."""

    def __init__(self, server_port: int, *, seed: int) -> None:
        self.port = 0
        self.is_losing = False
        self.lost = 0
        self._server_port = server_port
        self._rng = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commit-proxy", daemon=True)

    def start(self) -> None:
        """Begin to listen on a free port of loopback."""
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Cut every connection."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            back.close()
            return
        armed = asyncio.Event()
        try:
            await asyncio.wait(
                [
                    asyncio.create_task(self._ask(client, to_server, armed)),
                    asyncio.create_task(self._answer(server, back, armed)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            to_server.close()
            back.close()

    async def _ask(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, armed: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while content := await client.read(CHUNK):
                if self.is_losing and content.endswith(COMMIT) and self._rng.random() < 0.3:
                    armed.set()
                server.write(content)
                await server.drain()

    async def _answer(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, armed: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while content := await server.read(CHUNK):
                if armed.is_set():
                    armed.clear()
                    if DONE in content:
                        self.lost += 1
                        return
                client.write(content)
                await client.drain()
