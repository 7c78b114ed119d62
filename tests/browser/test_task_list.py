"""The list of tasks in a browser: tabs with numbers, filters that stay."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW, violations
from tests.end_to_end.installation import Installation
from tests.services.browser import PHONE


def test_tabs_have_numbers_and_filters_stay_from_tab_to_tab(
    site: Installation, sign_in: SignIn, page: Page, axe: str
) -> None:
    sign_in(page, "admin")
    page.goto(f"{site.address}/tasks/")
    tabs = page.get_by_role("navigation", name="Views")
    expect(tabs.get_by_role("link", name=re.compile(r"^Active \d"))).to_be_visible()

    page.get_by_text("More filters").click()
    page.get_by_label("Owner", exact=True).fill("demo-dev")
    page.get_by_label("Owner", exact=True).press("Enter")
    expect(page).to_have_url(re.compile("owner=demo-dev"))
    expect(page.get_by_label("Owner", exact=True)).to_be_visible()
    tabs.get_by_role("link", name=re.compile("^All")).click()
    expect(page).to_have_url(re.compile("view=all.*owner=demo-dev"))
    page.get_by_label("Order").select_option("Oldest first")
    expect(page).to_have_url(re.compile("sort=oldest"))

    expect(page.locator("tbody tr").first).to_be_visible()
    assert violations(page, axe) == []
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    assert page.evaluate(OVERFLOW) <= 0
