"""Access rules in a browser: one is made in a dialog, restricted, explained, and removed."""

from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.end_to_end.installation import Installation


def test_a_rule_is_made_explained_and_removed(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    page.goto(f"{site.address}/settings/access/")
    page.get_by_role("link", name="Create rule…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("On", exact=True).select_option(label="Policy Research")
    dialog.get_by_label("May", exact=True).select_option(label="Manage")
    dialog.get_by_label("People and service accounts").fill("nobody")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("There is nobody called nobody whom you may name.")).to_be_visible()
    dialog.get_by_label("People and service accounts").fill("demo-dev")
    dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("row", name="Research").filter(has_text="Manage")
    expect(row.get_by_text("demo-dev")).to_be_visible()

    page.get_by_role("link", name="Explain permissions").click()
    page.get_by_label("Person or service account").fill("demo-dev")
    page.get_by_label("Name or id").fill("Research")
    page.get_by_role("button", name="Explain").click()
    expect(
        page.get_by_text("A rule on policy Research names them, made by demo-admin.").first
    ).to_be_visible()

    page.goto(f"{site.address}/settings/access/?subject=demo-dev")
    row.get_by_role("link", name="Remove…").click()
    page.get_by_role("button", name="Remove rule").click()
    expect(page.get_by_text("Rule removed.")).to_be_visible()
    expect(page.get_by_role("link", name="Restrict…").first).to_be_visible()
    expect(row).to_have_count(0)


def test_a_form_that_was_opened_in_a_tab_of_its_own_is_saved(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    page.goto(f"{site.address}/settings/people/groups/new/")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Enter a value for “Name”.")).to_be_visible()
    page.get_by_label("Name").fill("opened-by-address")
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_role("heading", name="opened-by-address")).to_be_visible()
