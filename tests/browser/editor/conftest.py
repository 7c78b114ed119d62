"""An installation of its own, whose configuration the tests change as they like."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.editor.common import EDITOR, EXAMPLE, PASSWORD, Open, provision, ready
from tests.end_to_end.installation import AS_SHIPPED, Client, Installation, installed
from tests.services.browser import NewPage
from tests.services.requirements import need

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="package")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation that has nothing yet but two administrators and a member."""
    need("chromium")
    if not (ROOT / "static" / "dist" / "app.css").exists():
        need("pages", because="the front-end was not built: run `make assets`")
    folder = tmp_path_factory.mktemp("editor")
    with installed(folder, f"sqlite:///{folder / 'rpm.sqlite3'}", **AS_SHIPPED) as installation:
        yield installation


@pytest.fixture(scope="package")
def ada(empty: Installation) -> Client:
    return empty.person("ada", "Admins", password=PASSWORD)


@pytest.fixture(scope="package")
def ben(empty: Installation) -> Client:
    return empty.person("ben", "Admins", password=PASSWORD)


@pytest.fixture
def nothing(ada: Client) -> Client:
    """Neither pools nor profiles, live or in the draft."""
    provision(ada, {"pools": [], "profiles": []})
    return ada


@pytest.fixture
def example(ada: Client) -> Client:
    """Two pools and three profiles, live."""
    provision(ada, EXAMPLE)
    return ada


@pytest.fixture(scope="package")
def signed_in() -> list[Any]:
    """The cookies of the administrator: signing in is slow on purpose."""
    return []


@pytest.fixture
def open_editor(empty: Installation, ada: Client, new_page: NewPage, signed_in: list[Any]) -> Open:
    """The editor, as an administrator sees it."""

    def do(path: str = EDITOR, **options: Any) -> Page:
        page = new_page(**options)
        if signed_in:
            page.context.add_cookies(signed_in)
            page.goto(f"{empty.address}{path}")
        else:
            page.goto(f"{empty.address}/sign-in/?next={path}")
            page.get_by_label("Username").fill("ada")
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Sign in").click()
        ready(page)
        signed_in[:] = page.context.cookies()
        return page

    return do
