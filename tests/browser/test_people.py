"""Inviting somebody, and what they see when they come."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.end_to_end.installation import Installation
from tests.services.browser import NewPage

PASSWORD = "Correct-horse-7-battery"


def test_an_invited_person_comes_in_by_the_link_and_leaves_with_the_account(
    site: Installation, sign_in: SignIn, page: Page, new_page: NewPage
) -> None:
    sign_in(page, "admin")
    page.goto(site.address)
    page.get_by_role("link", name="Settings", exact=True).click()
    page.get_by_role("link", name="Invite…").click()
    page.get_by_label("E-mail address").fill("ada@example.org")
    page.get_by_label("demo-dev").check()
    page.get_by_role("button", name="Create link").click()
    link = page.locator("[data-link]").inner_text()
    page.get_by_role("link", name="Done").click()
    expect(page.get_by_text("Pending").first).to_be_visible()

    hers = new_page()
    hers.goto(link)
    hers.get_by_label("User name").fill("ada")
    hers.get_by_label("Password").fill(PASSWORD)
    hers.get_by_role("button", name="Join").click()
    expect(hers.get_by_role("link", name="Queues").first).to_be_visible()
    expect(hers.get_by_role("link", name="Settings", exact=True)).to_have_count(0)
    expect(hers.locator("html")).to_have_attribute("data-live-state", "live")

    page.reload()
    page.get_by_role("link", name="Deactivate…").click()
    page.get_by_role("button", name="Deactivate", exact=True).click()

    expect(page.get_by_text("Deactivated").first).to_be_visible()
    # Her socket closes, the page reloads, and the server answers her no more.
    expect(hers).to_have_url(re.compile(r"/sign-in/"))
