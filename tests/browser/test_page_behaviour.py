"""Pages in a real browser: alive, and whole without what they had hoped for."""

import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW
from tests.end_to_end.installation import Installation, until


def test_the_overview_changes_by_itself(site: Installation, sign_in: SignIn, page: Page) -> None:
    sign_in(page, "admin")
    page.goto(site.address)
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")
    page.evaluate("window.isSamePage = true")
    waiting = page.locator("[data-num=waiting]").first
    before = int(waiting.inner_text())

    site.manage("shell", "-c", ENQUEUE)

    expect(waiting).not_to_have_text(str(before))
    assert page.evaluate("window.isSamePage") is True


ENQUEUE = """
import time
from apps.accounts.models import User
from apps.tasks.task_spec import TaskSpec
from apps.tasks.services.enqueue.submission import task_submit

for number in range(3):
    task_submit(
        actor=User.objects.get(username="demo-dev"),
        spec=TaskSpec(name=f"later {number}", queue="dev-8xgpu", command=["true"]),
    )
time.sleep(1)
"""


def test_a_log_grows_on_the_page_of_a_running_task(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    page.goto(f"{site.address}/tasks/?view=running")
    page.locator("tbody a[href^='/tasks/']").first.click()
    lines = page.locator("#log .ln1")
    expect(lines.first).to_contain_text("step")

    before = lines.count()

    expect(lines.nth(before)).to_be_visible()


def polls(page: Page) -> None:
    """Let the page's clock run until it has given the socket up."""

    def has_given_up() -> bool:
        page.clock.run_for(1_000)
        return page.locator("[data-live-word]").inner_text() == "Every 10 s"

    until(has_given_up, what="the page asks by itself")


def test_a_page_whose_socket_is_gone_says_so_and_goes_on_asking(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    page.route_web_socket(re.compile(r".*/ws/live/"), lambda socket: socket.close())

    sign_in(page, "admin")
    page.clock.install()

    page.goto(site.address)

    polls(page)
    expect(page.get_by_text("Live updates are down")).to_be_visible()
    with page.expect_response(re.compile(r"/live/overview/")) as asked:
        page.clock.run_for(10_000)
    assert asked.value.status in {200, 304}


def test_the_theme_is_remembered_and_never_flashes(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "dev")
    page.goto(site.address)
    page.get_by_role("button", name="your account").click()
    page.get_by_role("button", name="Dark", exact=True).click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")

    page.goto(f"{site.address}/policies/", wait_until="commit")

    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_keyboard_reaches_the_content_first(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "dev")
    page.goto(f"{site.address}/queues/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")

    assert page.evaluate("document.activeElement.id") == "main"


def test_a_task_is_enqueued_and_aborted_by_hand(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "dev")
    page.goto(f"{site.address}/tasks/new/?queue=dev-8xgpu")
    page.get_by_label("Name").fill("by hand")
    page.get_by_label("Command").fill("sleep 600")
    page.get_by_role("button", name="Enqueue task").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("by hand")

    page.get_by_role("button", name="Abort…").click()
    page.get_by_role("button", name="Abort task").click()

    expect(page.get_by_text("Aborted").first).to_be_visible()
    expect(page.get_by_role("button", name="Run again")).to_be_visible()


# Every name on the page becomes one long word, and every card of the board is there many times.
MANY_CARDS = """() => {
  for (const row of document.querySelectorAll(".board-row")) {
    const card = row.firstElementChild;
    for (let count = row.children.length; count < 12; count += 1) row.append(card.cloneNode(true));
  }
}"""
NARROWEST = """() => Math.min(
  ...[...document.querySelectorAll(".board-row > *")].map((card) => card.offsetWidth))"""


def test_many_cards_on_the_board_keep_their_width_and_scroll_sideways(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    page.goto(f"{site.address}/settings/resources/")

    page.evaluate(MANY_CARDS)

    assert page.evaluate(NARROWEST) >= 250
    assert page.evaluate(OVERFLOW) <= 0


def test_a_task_is_aborted_without_javascript(
    site: Installation, sign_in: SignIn, chromium: Browser
) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    sign_in(page, "dev")
    page.goto(f"{site.address}/tasks/new/?queue=dev-8xgpu")
    page.get_by_label("Name").fill("without scripts")
    page.get_by_label("Command").fill("sleep 600")
    page.get_by_role("button", name="Enqueue task").click()

    page.get_by_role("button", name="Abort…").click()
    page.get_by_role("button", name="Abort task").click()

    expect(page.get_by_text("without scripts is")).to_be_visible()
    context.close()


def test_a_session_that_ended_shows_the_page_to_sign_in_and_no_card_full_of_it(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    page.route_web_socket(re.compile(r".*/ws/live/"), lambda socket: socket.close())
    sign_in(page, "dev")
    page.clock.install()
    page.goto(site.address)
    polls(page)

    page.context.clear_cookies()
    page.clock.run_for(10_000)

    expect(page).to_have_url(re.compile(r"/sign-in/"))


def test_a_zone_that_the_browser_does_not_know_stops_nothing(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    def with_zone(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(
            response=answer,
            body=answer.text().replace("<html ", '<html data-time-zone="Nowhere/Atall" ', 1),
        )

    sign_in(page, "dev")
    page.route(f"{site.address}/", with_zone)

    page.goto(f"{site.address}/")

    # The module that says so begins only after the one that reads the zone.
    expect(page.locator("[data-live-word]")).not_to_have_text("")


# Whether the message lies over something that can be pressed or typed into.
COVERS = """(line) => {
  const box = line.getBoundingClientRect();
  return [...document.querySelectorAll("a, button, input, select, textarea")].some((one) => {
    const other = one.getBoundingClientRect();
    return !line.contains(one) && other.width > 1 && other.left < box.right
      && box.left < other.right && other.top < box.bottom && box.top < other.bottom;
  });
}"""


@pytest.mark.parametrize("width", [400, 1440])
def test_a_message_covers_no_control_and_leaves_unless_the_pointer_is_on_it(
    site: Installation, sign_in: SignIn, page: Page, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    sign_in(page, "dev")
    page.goto(f"{site.address}/tasks/new/")
    page.get_by_label("Name").fill("draft")
    page.get_by_role("button", name="Enqueue task").click()
    page.clock.install()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_role("button", name="Save").click()
    message = page.locator(".toast-line", has_text="draft is saved.")

    expect(message).to_be_visible()
    assert not message.evaluate(COVERS)
    message.hover()
    page.clock.run_for(8_000)
    expect(message).to_be_visible()
    page.mouse.move(0, 0)
    page.clock.run_for(8_000)
    expect(message).to_be_hidden()


def test_an_error_stays_until_it_is_dismissed(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "dev")
    page.goto(f"{site.address}/tasks/?view=waiting")
    page.locator("tbody a[href^='/tasks/']").first.click()
    page.clock.install()
    page.goto(f"{page.url}edit/")
    message = page.locator(".toast-line", has_text="Only drafts can be edited.")

    page.clock.run_for(60_000)
    expect(message).to_be_visible()
    message.get_by_role("button", name="Dismiss").click()
    expect(message).to_have_count(0)
