"""From a commit to the new figure: 197 sockets that do what a page does, and three browsers.

A whole installation on PostgreSQL. Nothing serves its only pool, so each task that is enqueued
makes one more that waits, and the overview of everybody has a new number. What is counted begins
before the request is sent, so it is more than the time from the commit.
"""

import asyncio
import json
import os
import re
import statistics
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from playwright.sync_api import Page, sync_playwright
from websockets.asyncio.client import connect

from tests.end_to_end.installation import Client, Installation, installed, until
from tests.services.browser import DESKTOP, FLAGS
from tests.services.postgres import running_postgres
from tools.packages import find_program

SOCKETS = 197
BROWSERS = 3
COMMITS = 30
EVERY_S = 1.0
LATEST_S = 30.0
AIM_S = 1.0
PASSWORD = "correct-horse-battery"  # of an installation that lives for a minute
PEOPLE = {"rita": "waiting", "alice": "own-waiting"}
FIGURE = re.compile(r'data-num="(?:own-)?waiting">(\d+)<')
# Notes in the page when its number changes, on the clock that this process reads as well.
WATCH = """name => {
  window.seen = [];
  const look = () => {
    const figure = document.querySelector(`[data-num="${name}"]`);
    const value = Number(figure?.textContent);
    if (value !== window.seen.at(-1)?.[0]) window.seen.push([value, Date.now() / 1000]);
  };
  look();
  new MutationObserver(look).observe(document.body,
    {childList: true, subtree: true, characterData: true});
}"""

Seen = list[tuple[int, float]]


@dataclass(slots=True)
class Figure:
    """Seconds from sending the request to the number, of every reader and every commit."""

    sockets: list[float] = field(default_factory=list)
    browsers: list[float] = field(default_factory=list)
    posts: list[float] = field(default_factory=list)


def measure() -> Figure:
    """Enqueue a task a second while all pages are open."""
    with (
        TemporaryDirectory() as folder,
        running_postgres(durable=True) as cluster,
        installed(Path(folder), cluster.url(), RPM_LOG_LEVEL="WARNING") as installation,
    ):
        alice = _configured(installation)
        cookies = {name: _signed_in(installation, name) for name in PEOPLE}
        readers: list[Seen] = [[] for _ in range(SOCKETS)]
        with _sockets(installation, cookies, readers), _pages(installation, cookies) as pages:
            until(lambda: all(readers), what="every socket has its first card")
            sent = [_enqueue(alice, number) for number in range(COMMITS)]
            until(lambda: all(one[-1][0] >= COMMITS for one in readers), what="the last figure")
            time.sleep(EVERY_S)
            seen: list[Seen] = [page.evaluate("window.seen") for page in pages]
    figure = Figure(posts=[ended - began for began, ended in sent])
    for number, (began, _) in enumerate(sent, start=1):
        figure.sockets += [_first(one, number) - began for one in readers]
        figure.browsers += [_first(one, number) - began for one in seen]
    return figure


def percentile(values: list[float], part: int) -> float:
    """So many of a hundred are at most this."""
    return statistics.quantiles(values, n=100)[part - 1]


def _first(seen: Seen, number: int) -> float:
    return next(at for value, at in seen if value >= number)


def _configured(installation: Installation) -> Client:
    root = installation.person("rita", "Admins", password=PASSWORD)
    alice = installation.person("alice", "team", password=PASSWORD)
    version = root.http.get("/configuration/draft/").headers["ETag"]
    document = {
        "pools": [{"name": "H100", "capacity": 8}],
        "profiles": [{"name": "1xGPU", "request": 1, "pools": [{"pool": "H100"}]}],
    }
    root.put("/configuration/draft/", document, **{"If-Match": version})
    root.post("/configuration/draft/provision/", {"note": "One pool."})
    policy = root.post("/policies/", {"name": "Team", "group": "team", "reserved": 8})
    root.post(f"/policies/{policy['id']}/profiles/", {"profile": "1xGPU"})
    return alice


def _enqueue(client: Client, number: int) -> tuple[float, float]:
    began = time.time()
    client.post("/tasks/", {"name": f"t{number}", "queue": "team-1xgpu", "command": ["true"]})
    ended = time.time()
    time.sleep(max(0.0, began + EVERY_S - ended))
    return began, ended


def _signed_in(installation: Installation, name: str) -> str:
    """The session that the page to sign in gives, as a cookie."""
    with httpx.Client(base_url=installation.address, timeout=60) as browser:
        browser.get("/sign-in/")
        form = {"username": name, "password": PASSWORD}
        form["csrfmiddlewaretoken"] = browser.cookies["csrftoken"]
        answer = browser.post("/sign-in/", data=form)
        assert answer.status_code == 302, answer.text
        return browser.cookies["sessionid"]


@contextmanager
def _sockets(
    installation: Installation, cookies: dict[str, str], readers: list[Seen]
) -> Iterator[None]:
    """Every reader has a socket of its own, in one thread."""
    loop = asyncio.new_event_loop()
    names = list(cookies)

    async def read(seen: Seen, session: str) -> None:
        url = f"{installation.address.replace('http', 'ws', 1)}/ws/live/"
        headers = {"Cookie": f"sessionid={session}", "Origin": installation.address}
        async with connect(url, additional_headers=headers, open_timeout=LATEST_S) as socket:
            await socket.send(json.dumps({"type": "watch", "cards": [{"card": "overview"}]}))
            async for message in socket:
                found = FIGURE.search(json.loads(message).get("html", ""))
                if found:
                    seen.append((int(found[1]), time.time()))

    async def read_all() -> None:
        await asyncio.gather(
            *(read(one, cookies[names[i % len(names)]]) for i, one in enumerate(readers))
        )

    thread = threading.Thread(target=loop.run_until_complete, args=(_quietly(read_all()),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        thread.join()
        loop.close()


async def _quietly(all_of_them: Coroutine[Any, Any, None]) -> None:
    with suppress(asyncio.CancelledError):
        await all_of_them


@contextmanager
def _pages(installation: Installation, cookies: dict[str, str]) -> Iterator[list[Page]]:
    """Browsers with the overview open, each noting what it shows and when."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_program("chromium"), args=list(FLAGS)
        )
        pages = []
        names = list(cookies)
        for number in range(BROWSERS):
            name = names[number % len(names)]
            context = browser.new_context(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
            context.add_cookies(
                [{"name": "sessionid", "value": cookies[name], "url": installation.address}]
            )
            page = context.new_page()
            page.goto(installation.address)
            page.get_by_text("Live", exact=True).wait_for()
            page.evaluate(WATCH, PEOPLE[name])
            pages.append(page)
        yield pages
        browser.close()
