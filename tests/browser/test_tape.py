"""The tape in a real browser: what a block is, by pointer and by keyboard, and its links."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.end_to_end.installation import Installation


@pytest.fixture
def tape(site: Installation, sign_in: SignIn, page: Page) -> Page:
    sign_in(page, "admin")
    page.goto(f"{site.address}/")
    page.get_by_role("link", name="Tape").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Tape")
    return page


def test_a_block_says_what_it_is(tape: Page) -> None:
    blocks = tape.locator("a.tape-block")
    detail = tape.locator("[data-tape-detail]")
    usual = detail.text_content() or ""

    blocks.first.focus()
    expect(detail).to_have_text(blocks.first.locator("title").text_content() or "")
    blocks.first.blur()
    blocks.last.dispatch_event("pointerover")
    expect(detail).to_contain_text(" GPU on demo-")
    tape.locator(".tape").dispatch_event("pointerleave")
    expect(detail).to_have_text(usual.strip())


def test_arrows_go_from_row_to_row_and_enter_opens_the_task(tape: Page) -> None:
    rows = tape.locator(".tape-row:has(a.tape-block)")
    rows.nth(0).locator("a.tape-block").first.focus()

    tape.keyboard.press("ArrowDown")
    expect(rows.nth(1).locator("a.tape-block:focus")).to_have_count(1)
    tape.keyboard.press("ArrowUp")
    expect(rows.nth(0).locator("a.tape-block:focus")).to_have_count(1)
    tape.keyboard.press("Enter")
    expect(tape).to_have_url(re.compile(r"/tasks/[0-9a-f-]+/"))


def test_hours_and_earlier_times_are_links(tape: Page) -> None:
    tape.get_by_role("link", name="6 h").click()
    expect(tape.get_by_role("link", name="6 h")).to_have_attribute("aria-current", "true")
    tape.get_by_role("link", name="Earlier").click()
    expect(tape.get_by_role("link", name="Now")).to_be_visible()
    tape.get_by_role("link", name="As a table").click()
    expect(tape.get_by_role("columnheader", name="Owner")).to_be_visible()
