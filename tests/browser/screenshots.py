"""`make screenshots`: every page, at desktop and phone width, light and dark, into screenshots/.

Of the demonstration, as an administrator sees it, and some pages as a team member does. Run:
`python -m tests.browser.screenshots [part of a path ...]`.
"""

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.demonstration import demonstration, sign_in
from tests.browser.pages import PATHS, details
from tests.end_to_end.installation import Installation
from tests.services.browser import DESKTOP, FLAGS, PHONE
from tools.packages import find_program

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "screenshots"
SIZES = {"1440": DESKTOP, "390": PHONE}
SCHEMES = ("light", "dark")
# What a member sees otherwise than an administrator.
OF_A_MEMBER = ("/", "/policies/", "/queues/", "/settings/resources/", "/tasks/")
WORD_OF = {"/": "overview"}


def take(site: Installation, browser: Browser, wanted: list[str]) -> int:
    """Take the pictures of all pages, or of those with one of the words in them; how many."""
    taken = 0
    for who, own in (("admin", None), ("dev", OF_A_MEMBER)):
        for width, (across, down) in SIZES.items():
            for scheme in SCHEMES:
                context = browser.new_context(
                    viewport={"width": across, "height": down},
                    color_scheme="dark" if scheme == "dark" else "light",
                    locale="en-GB",
                    timezone_id="UTC",
                )
                page = context.new_page()
                sign_in(site, page, who)
                paths = own or (*PATHS, *details(page, site))
                seen: Counter[str] = Counter()
                for path in paths:
                    name = named(path)
                    seen[name] += 1
                    if not wanted or any(word in path for word in wanted):
                        number = f"-{seen[name]}" if seen[name] > 1 else ""
                        picture(page, site.address + path, f"{who}-{name}{number}-{width}-{scheme}")
                        taken += 1
                context.close()
    return taken


def named(path: str) -> str:
    """A path as a file's name; ids and what makes them differ are left out."""
    words = re.sub(r"[0-9a-f-]{36}", "one", path.partition("?")[0]).strip("/")
    query = path.partition("?")[2].replace("=", "-")
    return WORD_OF.get(path) or "-".join(filter(None, (words.replace("/", "-"), query)))


def picture(page: Page, address: str, name: str) -> None:
    """The whole page, as tall as it is, once it is alive."""
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.evaluate("document.fonts.ready")
    page.screenshot(path=TARGET / f"{name}.png", full_page=True, animations="disabled")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make screenshots", description=__doc__)
    parser.add_argument("words", nargs="*", help="Only paths with one of these in them.")
    wanted = parser.parse_args().words
    program = find_program("chromium")
    if program is None:
        sys.exit("Chromium is missing: sudo apt install chromium")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    TARGET.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="rpm-screenshots-") as name,
        sync_playwright() as play,
        demonstration(Path(name)) as site,
    ):
        browser = play.chromium.launch(executable_path=program, args=list(FLAGS))
        taken = take(site, browser, wanted)
        browser.close()
    sys.stdout.write(f"{taken} pictures in {TARGET}\n")


if __name__ == "__main__":
    main()
