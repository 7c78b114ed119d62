"""Every page is readable by everybody and whole on a phone."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW, PATHS, details, violations
from tests.end_to_end.installation import Installation
from tests.services.browser import DESKTOP, PHONE, NewPage

LONG_NAMES = """() => {
  const names = "h1.break-all, h1.wrap-anywhere, .title, tbody a:not(.btn), td.wrap, .linkrow a";
  for (const one of document.querySelectorAll(names)) one.textContent = "w".repeat(120);
}"""


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_page_breaks_wcag_or_scrolls_sideways(
    site: Installation, sign_in: SignIn, new_page: NewPage, axe: str, size: tuple[int, int]
) -> None:
    page = new_page(size=size)
    page.goto(f"{site.address}/sign-in/")
    found = violations(page, axe)
    sign_in(page, "admin")

    for path in (*PATHS, *details(page, site)):
        page.goto(site.address + path)
        expect(page.locator("h1").first).to_be_attached()
        found += violations(page, axe)
        if page.evaluate(OVERFLOW) > 0:
            found.append(f"{path} is wider than the window")
        page.evaluate(LONG_NAMES)
        if page.evaluate(OVERFLOW) > 0:
            found.append(f"{path} with long names is wider than the window")

    assert found == []
