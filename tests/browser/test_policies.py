"""Policies in a real browser: the overview, one policy, and what an administrator changes."""

import re

import pytest
from playwright.sync_api import APIResponse, Dialog, Page, Route, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import violations
from tests.end_to_end.installation import Installation, until
from tests.services.browser import DESKTOP, PHONE, NewPage
from tests.services.timeouts import scale_timeout_ms

# A group, and nothing else: the dialog has to offer it although the page is older.
GROUP = """
from django.contrib.auth.models import Group
Group.objects.create(name="robotics")
"""

SHORT_LIVED = """
from django.contrib.auth.models import Group
from apps.configuration.services.policies import policy_create
policy_create(actor=None, name="Short-lived", group=Group.objects.get(name="demo-dev"))
"""

# Changes a choice in the very moment in which a dialog with one appears, and once more before the
# first is answered.
CHOOSE_AT_ONCE = """
new MutationObserver((seen, observer) => {
  const select = document.querySelector("#fetched select");
  if (!select) return;
  observer.disconnect();
  const choose = () => select.dispatchEvent(new Event("change", { bubbles: true }));
  choose();
  select.value = [...select.options].find((one) => one.text.startsWith("4xGPU")).value;
  choose();
}).observe(document.getElementById("fetched"), { childList: true, subtree: true });
"""


def policy_page(page: Page, site: Installation, name: str) -> None:
    """Open the page of a policy from the overview."""
    page.goto(f"{site.address}/policies/")
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def test_an_administrator_makes_connects_changes_and_deletes_a_policy(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    page.goto(f"{site.address}/policies/")
    expect(page.get_by_role("dialog")).to_be_hidden()
    site.manage("shell", "-c", GROUP)

    make(page)
    connect(page)
    remove(page)

    expect(page.get_by_text("Policy Robotics is deleted.")).to_be_visible()
    expect(page.get_by_role("link", name="Robotics", exact=True)).to_be_hidden()


def make(page: Page) -> None:
    """A new policy: a wrong name is said at its field, then the preview, then the policy."""
    dialog = page.get_by_role("dialog")
    page.get_by_role("link", name="Create policy").click()
    expect(dialog.get_by_role("heading", name="Create policy")).to_be_visible()
    dialog.get_by_label("Group", exact=True).select_option("robotics")
    dialog.get_by_label("Reservation, GPU").fill("2")
    dialog.get_by_label("Limit, GPU").fill("4")
    dialog.get_by_role("button", name="Save policy").click()
    expect(dialog.get_by_label("Name")).to_have_attribute("aria-invalid", "true")
    expect(dialog.get_by_label("Name")).to_be_focused()
    dialog.get_by_label("Name").fill("Robotics")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("heading", name=re.compile("^Preview:"))).to_be_focused()
    dialog.get_by_label("Limit, GPU").fill("6")
    expect(dialog.get_by_role("heading", name=re.compile("^Preview:"))).to_be_hidden()
    dialog.get_by_role("button", name="Save policy").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Robotics")
    expect(page.get_by_text("EDIT", exact=True)).to_be_visible()


def connect(page: Page) -> None:
    """Too large ones cannot be chosen, the name is suggested, an empty or taken one refused."""
    dialog = page.get_by_role("dialog")
    page.evaluate(CHOOSE_AT_ONCE)
    with page.expect_response(re.compile("/queue-name/")):
        page.get_by_role("link", name="Connect profile…").click()
    large = dialog.locator("option", has_text="more than the limit of 6")
    expect(large.first).to_be_disabled()
    expect(dialog.get_by_label("Queue name")).to_have_value("robotics-4xgpu")
    dialog.get_by_label("Queue name").fill("")
    dialog.get_by_role("button", name="Connect profile").click()
    expect(dialog.get_by_text("Enter a value for “Queue name”.")).to_be_visible()
    dialog.get_by_label("Queue name").fill("dev-4xgpu")
    dialog.get_by_role("button", name="Connect profile").click()
    expect(dialog.get_by_text(re.compile("taken"))).to_be_visible()
    # What was typed outlives another choice; what is empty gets the name suggested for it.
    page.evaluate(
        "document.addEventListener('htmx:afterRequest', () => { window.isNamed = true }, true)"
    )
    dialog.get_by_label("Profile").select_option("2xGPU")
    until(lambda: page.evaluate("!!window.isNamed"), what="a name was suggested")
    expect(dialog.get_by_label("Queue name")).to_have_value("dev-4xgpu")
    dialog.get_by_label("Queue name").fill("")
    dialog.get_by_label("Profile").select_option("4xGPU")
    expect(dialog.get_by_label("Queue name")).to_have_value("robotics-4xgpu")
    dialog.get_by_label("Queue name").fill("robotics-4xgpu")
    dialog.get_by_role("checkbox", name="0.5xGPU").check()
    dialog.get_by_role("button", name="Connect profile").click()
    expect(page.get_by_text("4xGPU is connected as robotics-4xgpu.")).to_be_visible()
    expect(page.get_by_text("0.5xGPU is connected as robotics-05xgpu.")).to_be_visible()


def remove(page: Page) -> None:
    """Remove the profile again, and delete the policy under its name."""
    dialog = page.get_by_role("dialog")
    page.get_by_role("link", name="Remove… 4xGPU").click()
    expect(dialog.get_by_text("0 waiting tasks become drafts")).to_be_visible()
    dialog.get_by_role("button", name="Remove profile").click()
    expect(page.get_by_text("4xGPU is removed.")).to_be_visible()
    page.get_by_role("link", name="Delete…").click()
    dialog.get_by_label("Type Robotics to confirm").fill("robot")
    dialog.get_by_role("button", name="Delete policy").click()
    expect(dialog.get_by_text("This is not the name of the policy.")).to_be_visible()
    dialog.get_by_label("Type Robotics to confirm").fill("Robotics")
    dialog.get_by_role("button", name="Delete policy").click()


def test_edit_and_exit_switch_the_mode_and_a_dialog_can_be_left(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    policy_page(page, site, "Dev")
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_role("link", name="Connect profile…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()

    page.get_by_role("link", name="Exit").click()

    expect(page.get_by_text("EDIT", exact=True)).to_be_hidden()
    expect(page.get_by_role("heading", name="What can start now")).to_be_visible()


def test_unsaved_values_of_a_policy_are_not_left_without_a_question(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    questions: list[str] = []

    def stay(dialog: Dialog) -> None:
        questions.append(dialog.type)
        dialog.dismiss()

    sign_in(page, "admin")
    policy_page(page, site, "Dev")
    page.on("dialog", stay)
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_role("link", name="Exit").click()
    expect(page.get_by_text("EDIT", exact=True)).to_be_hidden()
    page.get_by_role("link", name="Edit", exact=True).click()
    description = page.get_by_label("Description")
    before = description.input_value()

    description.fill("for the night")
    page.get_by_role("link", name="Exit").click()
    expect(description).to_have_value("for the night")
    assert questions == ["beforeunload"]
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name=re.compile("^Preview:"))).to_be_visible()
    page.get_by_role("link", name="Exit").click()
    expect(description).to_have_value("for the night")
    assert questions == ["beforeunload"] * 2

    description.fill(before)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("EDIT", exact=True)).to_be_visible()
    page.get_by_role("link", name="Exit").click()
    expect(page.get_by_text("EDIT", exact=True)).to_be_hidden()
    assert len(questions) == 2


def test_a_dialog_that_was_left_stays_closed_when_its_answer_comes(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    waiting: list[Route] = []

    def hold(route: Route) -> None:
        waiting.append(route)

    sign_in(page, "admin")
    page.goto(f"{site.address}/policies/")
    page.get_by_role("link", name="Create policy").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("Seen by nobody")
    page.route("**/policies/new/", hold)

    with page.expect_request("**/policies/new/"):
        dialog.get_by_role("button", name="Preview").click()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.evaluate(
        "document.addEventListener('htmx:beforeSwap', () => { window.answered = true }, true)"
    )
    for route in waiting:
        route.continue_()

    until(lambda: page.evaluate("!!window.answered"), what="the preview is there")
    # What htmx swaps, it settles 20 ms later; by then the next frames are drawn.
    page.evaluate("new Promise((done) => { setTimeout(done, 100) })")
    expect(dialog).to_be_hidden()


def test_what_is_gone_meanwhile_is_said_in_the_dialog(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    policy_page(page, site, "Dev")
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_role("link", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    page.route("**/delete/", lambda route: route.fulfill(status=404))

    dialog.get_by_role("button", name="Delete policy").click()

    expect(dialog.get_by_role("alert")).to_contain_text("This no longer exists. Reload the page.")
    dialog.get_by_role("button", name="Dismiss").click()
    expect(dialog.get_by_role("alert")).to_have_count(0)


def test_what_is_deleted_is_said_although_its_live_page_is_gone_first(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    site.manage("shell", "-c", SHORT_LIVED)
    heard: list[str] = []
    held: list[tuple[Route, APIResponse]] = []
    page.on("websocket", lambda one: one.on("framereceived", lambda text: heard.append(str(text))))
    sign_in(page, "admin")
    policy_page(page, site, "Short-lived")
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_role("link", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type Short-lived to confirm").fill("Short-lived")
    page.route("**/delete/", lambda route: held.append((route, route.fetch())))

    def is_heard() -> bool:
        # What the browser tells arrives while Playwright waits.
        page.wait_for_timeout(50)
        return bool(held) and any('"gone"' in text for text in heard)

    dialog.get_by_role("button", name="Delete policy").click()
    until(is_heard, what="the page hears that the policy is gone, and not what was answered")
    for route, response in held:
        route.fulfill(response=response)

    expect(page).to_have_url(f"{site.address}/policies/")
    expect(page.get_by_text("Policy Short-lived is deleted.")).to_be_visible()


def test_a_member_sees_the_policy_and_nothing_to_change_it(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "dev")
    policy_page(page, site, "Dev")

    expect(page.get_by_role("heading", name="What can start now")).to_be_visible()
    expect(page.get_by_role("link", name="Edit", exact=True)).to_be_hidden()
    expect(page.get_by_text("Routing order")).to_be_hidden()
    page.get_by_role("button", name=re.compile("in demo-dev")).click()
    expect(page.get_by_role("heading", name="People of the group")).to_be_visible()
    page.goto(f"{site.address}/policies/")
    expect(page.get_by_role("link", name="Research", exact=True)).to_be_hidden()
    expect(page.get_by_role("link", name="Create policy")).to_be_hidden()


def test_the_overview_is_filtered_and_sorted_in_the_address(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    page.goto(f"{site.address}/policies/")
    page.get_by_role("columnheader", name="Waiting").get_by_role("link").click()
    expect(page.get_by_role("columnheader", name="Waiting")).to_have_attribute(
        "aria-sort", "descending"
    )

    page.get_by_role("searchbox").fill("nowhere")
    expect(page.get_by_text("No policy matches “nowhere”")).to_be_visible()
    page.get_by_role("link", name="Clear filter").click()

    expect(page.get_by_role("link", name="Dev", exact=True)).to_be_visible()


def test_figures_refresh_by_themselves(site: Installation, sign_in: SignIn, page: Page) -> None:
    sign_in(page, "dev")
    policy_page(page, site, "Dev")
    expect(page.get_by_role("img", name=re.compile("^GPUs held, "))).to_be_visible()
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")
    expect(page.locator(".can-start li").first).to_be_visible()
    # Of this profile as many wait as run, for as long as these tests go.
    waiting = page.get_by_role("article", name="Profile 4xGPU").locator("[data-num^=w-]")
    before = waiting.inner_text()

    with page.expect_response(re.compile(r"/can-start/$"), timeout=scale_timeout_ms(60)):
        site.manage("shell", "-c", ENQUEUE)

    expect(waiting).not_to_have_text(before)


ENQUEUE = """
from apps.accounts.models import User
from apps.policies.models import Queue
from apps.tasks.task_spec import TaskSpec
from apps.tasks.services.enqueue.submission import task_submit

for queue in Queue.objects.filter(name__startswith="dev-", removed_at__isnull=True):
    for number in range(2):
        task_submit(
            actor=User.objects.get(username="demo-dev"),
            spec=TaskSpec(name=f"more {number}", queue=queue.name, command=["true"]),
        )
"""


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_what_is_fetched_and_every_dialog_break_no_wcag_rule(
    site: Installation, sign_in: SignIn, new_page: NewPage, axe: str, size: tuple[int, int]
) -> None:
    page = new_page(size=size)
    sign_in(page, "admin")
    policy_page(page, site, "Dev")
    expect(page.locator(".can-start li").first).to_be_visible()
    found = violations(page, axe)
    page.get_by_role("link", name="Edit", exact=True).click()
    for link, button in (
        ("Connect profile…", ""),
        ("Delete…", "Delete policy"),
    ):
        page.get_by_role("link", name=link).click()
        expect(page.get_by_role("dialog").get_by_role("heading")).to_be_visible()
        if button:
            page.get_by_role("dialog").get_by_role("button", name=button).click()
            expect(page.get_by_role("dialog").locator("[aria-invalid=true]")).to_be_visible()
        found += violations(page, axe)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
    page.goto(f"{site.address}/policies/")
    page.get_by_role("link", name="Create policy").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("Seen by nobody")
    dialog.get_by_label("Group", exact=True).select_option("demo-dev")
    dialog.get_by_label("Reservation, GPU").fill("64")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("heading", name=re.compile("^Preview:"))).to_be_visible()
    found += violations(page, axe)

    assert found == []
