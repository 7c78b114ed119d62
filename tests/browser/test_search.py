"""The search of the navigation, by the keyboard alone."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW, violations
from tests.end_to_end.installation import Installation
from tests.services.browser import PHONE, NewPage

CHOSEN = "#search-dialog [role=option][aria-selected=true]"


def test_a_task_is_found_with_three_keystrokes_and_enter(
    site: Installation, sign_in: SignIn, page: Page, axe: str
) -> None:
    sign_in(page, "dev")
    page.goto(f"{site.address}/policies/")
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")

    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Search")
    expect(dialog.get_by_role("option", name="New task")).to_be_visible()
    assert violations(page, axe) == []
    page.keyboard.type("g-3")
    expect(page.locator(CHOSEN)).to_contain_text("lasting-3")
    assert violations(page, axe) == []
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text("lasting-3")


def test_enter_that_is_faster_than_the_answer_waits_for_it_and_arrows_choose(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "dev")
    page.goto(f"{site.address}/queues/")
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")

    page.keyboard.press("Control+k")
    page.keyboard.type("lasting-5")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("lasting-5")

    page.keyboard.press("Control+k")
    page.keyboard.type("vault")
    expect(page.locator(CHOSEN)).to_contain_text("New vault")
    page.keyboard.press("ArrowUp")
    expect(page.locator(CHOSEN)).to_contain_text("All tasks")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Search")).to_be_hidden()
    expect(page.get_by_role("heading", level=1)).to_have_text("lasting-5")


def test_a_question_leads_to_its_answer(site: Installation, sign_in: SignIn, page: Page) -> None:
    sign_in(page, "admin")
    page.goto(site.address)
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")

    page.keyboard.press("Control+k")
    page.keyboard.type("can demo-dev enqueue in dev-4xgpu")
    expect(page.locator(CHOSEN)).to_contain_text("What demo-dev can see and do on dev-4xgpu")
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile(r"/settings/access/explain/"))
    expect(page.get_by_role("heading", name="demo-dev and Queue dev-4xgpu")).to_be_visible()


def test_a_search_that_fails_leaves_the_page_only_with_enter(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "dev")
    page.goto(f"{site.address}/queues/")
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")
    page.route("**/search/**", lambda route: route.abort(), times=1)

    page.keyboard.press("Control+k")
    page.keyboard.type("lasting-5")
    dialog = page.get_by_role("dialog", name="Search")
    expect(dialog.locator("[data-results]")).to_have_text(re.compile("did not answer"))
    expect(page).to_have_url(re.compile(r"/queues/$"))
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile(r"/search/\?q=lasting-5"))


def test_the_search_opens_by_a_press_on_a_phone(
    site: Installation, sign_in: SignIn, new_page: NewPage, axe: str
) -> None:
    page = new_page(size=PHONE)
    sign_in(page, "dev")
    page.goto(f"{site.address}/tasks/")

    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_role("dialog").get_by_role("combobox").fill("lasting")
    expect(page.locator(CHOSEN)).to_contain_text("lasting-")

    assert page.evaluate(OVERFLOW) <= 0
    assert violations(page, axe) == []
