"""Chromium of this machine, driven by Playwright."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect, sync_playwright

from tests.services.requirements import need
from tests.services.timeouts import scale_timeout_ms

# No sandbox (tests may run as root), no graphics card, no requests to its vendor.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP = (1440, 900)
PHONE = (390, 844)

SHOWN = "document.querySelector('main')?.innerText.replace(/\\s+/g, ' ').slice(0, 400)"

NewPage = Callable[..., Page]
log = logging.getLogger(__name__)


@contextmanager
def chromium_running() -> Iterator[Browser]:
    """One Chromium, for as long as the block lasts."""
    program = need("chromium")
    # Playwright keeps an event loop in this thread, which Django takes for asynchronous code.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
            yield browser
            browser.close()
    finally:
        if before is None:
            del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
        else:
            os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


# While Playwright runs, its thread has an event loop: tests of other modules could make none.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One Chromium for a module; its tests share a process (`distribution.py`)."""
    with chromium_running() as browser:
        yield browser


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[NewPage]:
    """Makes pages, each in a context of its own: as if of another user on another machine.

    `new_page(size=PHONE, scheme="dark")`; a script error on any of them fails the test, and a
    request that would leave this machine is refused and fails it, too.
    """
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def make(*, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> Page:
        context = chromium.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if scheme == "dark" else "light",
            # Nothing moves under a click, and no processor draws what pulses.
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
            ignore_https_errors=True,
        )
        contexts.append(context)
        page = context.new_page()
        # Bounds the waiting time, and says nothing about speed.
        page.set_default_timeout(scale_timeout_ms(20))
        expect.set_options(timeout=scale_timeout_ms(20))
        page.on("pageerror", lambda error: wrong.append(_text(error)))
        page.on("request", lambda request: wrong.extend(_if_outside(request.url)))
        return page

    yield make
    for context in contexts:
        for page in context.pages:
            with suppress(Error):
                # Shown where the test failed.
                log.warning("%s: %s", page.url, page.evaluate(SHOWN))
        context.close()
    assert wrong == []


@pytest.fixture
def page(new_page: NewPage) -> Page:
    """One page of desktop size."""
    return new_page()


def _text(error: Error) -> str:
    return f"script error: {error}"


def _if_outside(url: str) -> list[str]:
    local = ("http://127.0.0.1", "http://localhost", "ws://127.0.0.1", "data:", "blob:", "about:")
    return [] if url.startswith(local) else [f"left this machine: {url}"]
