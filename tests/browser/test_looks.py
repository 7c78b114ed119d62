"""Every page in a real browser: readable by everybody, whole on a phone, and alive."""

import re
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import SignIn
from tests.end_to_end.installation import Installation, until
from tests.services.browser import DESKTOP, PHONE, NewPage

PATHS = (
    "/",
    "/tasks/?view=all",
    "/tasks/new/",
    "/queues/",
    "/policies/",
    "/policies/new/",
    "/settings/resources/",
    "/settings/resources/edit/?view=board",
    "/settings/resources/edit/?view=matrix",
    "/settings/resources/history/",
    "/settings/resources/yaml/",
    "/nodes/",
    "/credentials/",
    "/settings/vaults/",
    "/settings/vaults/new/",
    "/settings/audit/",
    "/settings/account/",
    "/settings/people/",
    "/settings/people/invite/",
    "/settings/people/groups/",
    "/settings/people/groups/new/",
    "/settings/service-accounts/",
    "/settings/service-accounts/new/",
    "/settings/second-factor/",
    "/settings/identity/",
    "/settings/identity/new/",
    "/settings/identity/new/keycloak/",
    "/settings/identity/new/duo/",
    "/settings/identity/log-in/",
    "/nowhere/",
)
Scheme = Literal["light", "dark"]
# In the dark only colours differ.
RULES: dict[Scheme, list[str]] = {
    "light": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
    "dark": ["color-contrast", "link-in-text-block"],
}
# Colours that are still on their way to the other scheme are nobody's.
END_TRANSITIONS = """document.getAnimations()
  .filter(one => one instanceof CSSTransition).forEach(one => one.finish())"""
# A page that is wider than its window scrolls sideways.
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"


def violations(page: Page, axe: str) -> list[str]:
    """What axe finds against WCAG 2.2 AA, light and dark, as one line each."""
    # As a tool of the browser, not of the page: the page's policy allows no script of ours.
    page.evaluate(axe)
    lines = []
    for scheme, rules in RULES.items():
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("html")).to_have_attribute("data-theme", scheme)
        page.evaluate(END_TRANSITIONS)
        found = page.evaluate("rules => axe.run(document, {runOnly: rules})", rules)
        lines += [
            f"{page.url}: {scheme}: {one['id']}: {node['html'][:160]}"
            for one in found["violations"]
            for node in one["nodes"]
        ]
    return lines


def details(page: Page, site: Installation) -> list[str]:
    """Addresses of a policy in both modes, a queue, a node, a waiting and a running task, a person
    and a group.
    """
    links = []
    lists = (
        ("/policies/", "policies"),
        ("/queues/", "queues"),
        ("/nodes/", "nodes"),
        ("/tasks/?view=waiting", "tasks"),
        ("/tasks/?view=running", "tasks"),
        ("/settings/people/", "settings/people"),
        ("/settings/people/groups/", "settings/people/groups"),
    )
    for path, kind in lists:
        page.goto(site.address + path)
        link = page.locator(f"tbody a[href^='/{kind}/']").first
        links.append(link.get_attribute("href") or "")
    return [links[0], f"{links[0]}edit/", *links[1:]]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_page_breaks_wcag_or_scrolls_sideways_even_with_long_names(
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
from apps.tasks.descriptions import Description
from apps.tasks.services.enqueueing import task_submit

for number in range(3):
    task_submit(
        actor=User.objects.get(username="demo-dev"),
        description=Description(name=f"later {number}", queue="dev-8xgpu", command=["true"]),
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
    expect(page.get_by_role("button", name="Enqueue again")).to_be_visible()


# Every name on the page becomes one long word, and every card of the board is there many times.
LONG_NAMES = """() => {
  const names = "h1.break-all, h1.wrap-anywhere, .title, tbody a:not(.btn), td.wrap, .linkrow a";
  for (const one of document.querySelectorAll(names)) one.textContent = "w".repeat(120);
}"""
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
