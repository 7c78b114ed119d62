"""The demonstration, as `make run` starts it, for a browser to look at."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.end_to_end.installation import Installation, installed
from tests.services.requirements import need

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"

SignIn = Callable[[Page, str], None]

# Tasks of the demonstration end by themselves, after a few minutes all of them.
LASTING = """
from apps.accounts.models import User
from apps.tasks.descriptions import Description
from apps.tasks.services.enqueueing import task_submit
for number in range(8):
    task_submit(
        actor=User.objects.get(username="demo-dev"),
        description=Description(
            name=f"lasting-{number}", queue="dev-4xgpu", command=["sleep", "7200"]
        ),
    )
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A whole installation with the demonstration in it."""
    need("chromium")
    if not (ROOT / "static" / "dist" / "app.css").exists():
        need("pages", because="the front-end was not built: run `make assets`")
    folder = tmp_path_factory.mktemp("site")
    # SQLite, as `make run` has it.
    with installed(folder, f"sqlite:///{folder / 'rpm.sqlite3'}") as installation:
        installation.manage("demo")
        # As many as may run at once, and as many that wait for them.
        installation.manage("shell", "--command", LASTING)
        yield installation


@pytest.fixture
def sign_in(site: Installation) -> SignIn:
    """Sign a page in as one of the demonstration's people: `admin`, `dev` or `research`."""
    path = Path(site.environment["RPM_HOME"]) / "demonstration-logins.json"
    passwords = {one["username"]: one["password"] for one in json.loads(path.read_text())}

    def do(page: Page, who: str) -> None:
        page.goto(f"{site.address}/sign-in/")
        page.get_by_label("Username").fill(f"demo-{who}")
        page.get_by_label("Password").fill(passwords[f"demo-{who}"])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{site.address}/")

    return do


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, from npm."""
    if not AXE.exists():
        need("axe-core", because="run `python tools/assets.py --dev`")
    return AXE.read_text(encoding="utf-8")
