"""A rule is added, a task ends, and the bell rings on the page that is open."""

import os
import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.test_live_cards import ABORT, running_task
from tests.end_to_end.installation import Installation
from tests.services.browser import DESKTOP, PHONE
from tests.services.timeouts import scale_timeout_ms

__all__ = ["running_task"]
# Tasks of other tests may end meanwhile.
SOME = re.compile(r"^\s*[1-9]\s*$")
FORGET = "from apps.notices.models import NoticeRule; NoticeRule.objects.all().delete()"
SHOTS = os.environ.get("NOTICE_SHOTS", "")


def shoot(page: Page, name: str) -> None:
    if not SHOTS:
        return
    for (width, height), scheme in ((DESKTOP, "light"), (PHONE, "dark"), (PHONE, "light")):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate("s => { document.documentElement.dataset.theme = s }", scheme)
        page.screenshot(path=f"{SHOTS}/{name}-{width}-{scheme}.png")
    page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
    page.evaluate("document.documentElement.dataset.theme = 'light'")


def test_a_rule_makes_the_bell_ring_on_the_open_page(
    site: Installation, sign_in: SignIn, page: Page, running_task: str
) -> None:
    sign_in(page, "dev")
    page.goto(f"{site.address}/settings/notices/")
    shoot(page, "rules-empty")
    page.get_by_role("link", name="Add rule", exact=False).first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Completed or aborted").check()
    shoot(page, "rule-form")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The rule is saved.")).to_be_visible()
    expect(page.get_by_role("cell", name="Own tasks", exact=True)).to_be_visible()
    shoot(page, "rules")

    page.goto(f"{site.address}/tasks/")
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")
    site.manage("shell", "-c", ABORT.format(pk=running_task))
    expect(page.locator(".notice-count")).to_have_text(SOME, timeout=scale_timeout_ms(60))
    shoot(page, "bell")

    page.locator(".notice-bell").click()
    expect(page.get_by_text(re.compile(r"[1-9] unread")).first).to_be_visible()
    shoot(page, "list")
    page.get_by_role("button", name="Mark as read", exact=False).first.click()
    expect(page.get_by_text("0 unread")).to_be_visible()
    # A page with nothing else live asks for the bell by itself.
    page.goto(f"{site.address}/settings/notices/")
    expect(page.locator(".notice-bell")).to_have_attribute("aria-label", "Notices")
    expect(page.locator(".notice-count")).to_have_count(0)
    site.manage("shell", "-c", FORGET)
