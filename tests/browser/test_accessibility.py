"""Every page is readable by everybody and whole on a phone."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import AIMLESS, OVERFLOW, PATHS, details, violations
from tests.end_to_end.installation import Installation
from tests.services.browser import DESKTOP, PHONE

LONG_NAMES = """() => {
  const names = "h1.break-all, h1.wrap-anywhere, .title, tbody a:not(.btn), td.wrap, .linkrow a";
  for (const one of document.querySelectorAll(names)) one.textContent = "w".repeat(120);
}"""


@pytest.mark.parametrize("part", [0, 1], ids=["even", "odd"])
def test_no_page_breaks_wcag_or_scrolls_sideways(
    site: Installation, sign_in: SignIn, page: Page, axe: str, part: int
) -> None:
    page.goto(f"{site.address}/sign-in/")
    found = problems(page, axe)
    sign_in(page, "admin")

    for path in (*PATHS, *details(page, site))[part::2]:
        page.goto(site.address + path)
        expect(page.locator("h1").first).to_be_attached()
        found += problems(page, axe)

    assert found == []


def problems(page: Page, axe: str) -> list[str]:
    """What is wrong with this page, at a desk and on a phone, and with names of any length."""
    found = [f"{page.url} has no {target}" for target in page.evaluate(AIMLESS)]
    for width, height in (DESKTOP, PHONE):
        page.set_viewport_size({"width": width, "height": height})
        found += violations(page, axe)
        if page.evaluate(OVERFLOW) > 0:
            found.append(f"{page.url} is wider than {width} px")
    page.evaluate(LONG_NAMES)
    for width, height in (PHONE, DESKTOP):
        page.set_viewport_size({"width": width, "height": height})
        if page.evaluate(OVERFLOW) > 0:
            found.append(f"{page.url} with long names is wider than {width} px")
    return found
