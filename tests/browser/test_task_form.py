"""The form of a new task in a browser: the words of the command, more fields, a copy."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW, violations
from tests.end_to_end.installation import Installation


def test_a_task_is_described_with_every_field_kept_as_a_draft_and_copied(
    site: Installation, sign_in: SignIn, page: Page, axe: str
) -> None:
    sign_in(page, "dev")
    page.goto(f"{site.address}/tasks/new/")
    expect(page.locator("[name=retries]")).to_be_hidden()

    page.get_by_label("Name", exact=True).fill("form-task")
    page.get_by_label("Command").fill("sh -c 'echo \"a b\"' x")
    expect(page.locator("[data-words] code")).to_have_text(["sh", "-c", 'echo "a b"', "x"])
    page.get_by_label("Command").fill("sh -c 'open")
    expect(page.locator("[data-words]")).to_have_text("A quote is not closed.")
    page.get_by_label("Command").fill("sh -c true")
    page.get_by_text("More", exact=True).first.click()
    page.get_by_label("Retries").fill("3")
    page.get_by_label("Secrets").fill("PASSWORD=words")
    page.get_by_role("button", name="Show as command").click()
    expect(page.get_by_label("rpmctl", exact=True)).to_contain_text("rpmctl enqueue")
    expect(page.get_by_label("curl", exact=True)).to_contain_text("<value of PASSWORD>")
    # Values below *More* keep it open.
    expect(page.get_by_label("Retries")).to_be_visible()
    assert violations(page, axe) == []
    assert page.evaluate(OVERFLOW) <= 0
    page.locator("form.panel").get_by_role("button", name="Enqueue task").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("form-task")

    page.get_by_role("link", name="Copy and edit").click()
    expect(page).to_have_url(re.compile(r"/tasks/new/\?copy="))
    expect(page.get_by_label("Retries")).to_have_value("3")
    expect(page.get_by_label("Secrets")).not_to_have_value(re.compile("words"))
    page.get_by_label("Name", exact=True).fill("form-copy")
    page.locator("form.panel").get_by_role("button", name="Enqueue task").last.click()

    expect(page.get_by_role("heading", level=1)).to_have_text("form-copy")
