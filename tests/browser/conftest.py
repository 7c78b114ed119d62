"""The demonstration, as `make run` starts it, for a browser to look at."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.demonstration import demonstration
from tests.browser.demonstration import sign_in as demonstration_sign_in
from tests.end_to_end.installation import Installation
from tests.services.browser import chromium_running
from tests.services.requirements import need

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"

SignIn = Callable[[Page, str], None]


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A whole installation with the demonstration in it."""
    need("chromium")
    if not (ROOT / "static" / "dist" / "app.css").exists():
        need("pages", because="the front-end was not built: run `make assets`")
    folder = tmp_path_factory.mktemp("site")
    with demonstration(folder) as installation:
        yield installation


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """One for all of these tests: each has windows of its own in it."""
    with chromium_running() as browser:
        yield browser


@pytest.fixture(scope="package")
def sessions() -> dict[str, list[Any]]:
    """The cookies of whoever signed in before."""
    return {}


@pytest.fixture
def sign_in(site: Installation, sessions: dict[str, list[Any]]) -> SignIn:
    """Sign a page in as one of the demonstration's people: `admin`, `dev` or `research`.

    Each signs in by the form once; later pages are further windows of the same session, and show
    nothing yet.
    """

    def join(page: Page, who: str) -> None:
        if who not in sessions:
            demonstration_sign_in(site, page, who)
            sessions[who] = page.context.cookies()
        page.context.add_cookies(sessions[who])

    return join


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, from npm."""
    if not AXE.exists():
        need("axe-core", because="run `python tools/assets.py --dev`")
    return AXE.read_text(encoding="utf-8")
