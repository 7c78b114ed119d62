"""The list of tasks in a browser: tabs with numbers, filters that stay."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW, violations
from tests.end_to_end.installation import Installation
from tests.services.browser import PHONE

# What the live connection does with the list as it is by now.
REFRESH = """async () => {
  const { morph } = await import("/static/dist/js/morph.js");
  const card = document.querySelector("[data-live^=task_rows]");
  const next = document.createElement("template");
  next.innerHTML = await (await fetch(location.href)).text();
  const fresh = document.createElement("template");
  fresh.innerHTML = next.content.querySelector("[data-live^=task_rows]").outerHTML;
  morph(card, fresh.content, "outerHTML");
}"""


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


def test_selected_tasks_get_another_priority_with_one_question(
    site: Installation, sign_in: SignIn, page: Page, axe: str
) -> None:
    sign_in(page, "dev")
    page.goto(f"{site.address}/tasks/?view=waiting&name=lasting")
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")
    bar = page.locator("#task-bulk")
    expect(bar).to_be_hidden()

    rows = page.locator("tbody tr")
    rows.nth(0).get_by_role("checkbox").check()
    expect(bar).to_contain_text("1 selected")
    rows.nth(1).get_by_role("checkbox").check()
    expect(bar).to_contain_text("2 selected")
    # What is selected outlives an update of the list.
    page.evaluate(REFRESH)
    expect(bar).to_contain_text("2 selected")
    expect(rows.nth(1).get_by_role("checkbox")).to_be_checked()
    assert violations(page, axe) == []
    bar.get_by_role("button", name="Priority…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Give 2 tasks which priority?")
    page.get_by_label("Priority").fill("0")
    assert violations(page, axe) == []
    page.get_by_role("button", name="Priority", exact=True).click()

    expect(page.get_by_role("heading", level=1)).to_have_text("2 tasks changed")
    assert violations(page, axe) == []
