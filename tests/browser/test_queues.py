"""Queues and nodes in a browser: order, pause, settings, moving tasks."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW, violations
from tests.end_to_end.installation import Installation, until
from tests.services.browser import DESKTOP, PHONE, NewPage
from tests.services.timeouts import scale_timeout_ms

# What makes rows draggable is fetched after the page.
IS_SORTABLE = "!!window.Sortable?.get(document.querySelector('[data-behaviour=drag-order]'))"
NAMES = "tbody tr td:nth-child(2) a"
# A paused queue: nothing in it starts while its order is looked at.
QUIET = "dev-05xgpu"
BEGIN = f"""
from apps.accounts.models import User
from apps.configuration.services.queues import queue_pause
from apps.policies.models import Queue
from apps.tasks.task_spec import TaskSpec
from apps.tasks.services.enqueue.submission import task_submit
queue_pause(actor=None, queue=Queue.objects.get(name="{QUIET}"), reason="quiet for a while")
for number in range(5):
    task_submit(
        actor=User.objects.get(username="demo-dev"),
        spec=TaskSpec(name=f"quiet-{{number}}", queue="{QUIET}", command=["true"]),
    )
"""
END = f"""
from apps.accounts.models import User
from apps.configuration.services.queues import queue_resume
from apps.policies.models import Queue
from apps.tasks.models import Task
from apps.tasks.services.stop import task_abort
queue = Queue.objects.get(name="{QUIET}")
for task in Task.objects.filter(queue=queue, state="queued"):
    task_abort(actor=task.owner, task=task)
queue_resume(actor=None, queue=queue)
"""
# One that comes while a row is held, and whose priority puts it behind all others.
LATE = f"""
from apps.accounts.models import User
from apps.tasks.task_spec import TaskSpec
from apps.tasks.services.enqueue.submission import task_submit
task_submit(
    actor=User.objects.get(username="demo-dev"),
    spec=TaskSpec(name="latecomer", queue="{QUIET}", command=["true"], priority=-5),
)
"""
ORDER = re.compile(r"/queues/\d+/order/$")


@pytest.fixture(scope="module")
def quiet(site: Installation) -> Iterator[str]:
    """The name of a queue in which five tasks wait, whatever happens."""
    site.manage("shell", "-c", BEGIN)
    yield QUIET
    site.manage("shell", "-c", END)


def open_queue(page: Page, site: Installation, name: str) -> None:
    page.goto(f"{site.address}/queues/")
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")


def line(page: Page) -> list[str]:
    return page.locator(NAMES).all_inner_texts()


def row_of(page: Page, name: str) -> Locator:
    return page.locator("tbody tr", has=page.get_by_role("link", name=name, exact=True))


def hold(page: Page, moved: str, over: str, upwards_to: str = "") -> None:
    """Take a row by its grip to the place behind another, and hold it there.

    From below it is led onto the row that stands there now, `upwards_to`.
    """
    until(lambda: page.evaluate(IS_SORTABLE), what="rows can be dragged")

    def take() -> None:
        page.mouse.up()
        row_of(page, moved).locator(".grip").hover()
        page.mouse.down()

    take()

    def is_behind() -> bool:
        names = line(page)
        if names.index(moved) == names.index(over) + 1:
            return True
        if not page.locator("tr.sortable-chosen").count():
            # The answer to what was done before has just replaced the rows.
            take()
        # Rows that are still on their way to their new places are no target.
        box = row_of(page, upwards_to or over).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 40, box["y"] + box["height"] / 2)
        page.mouse.move(box["x"] + 40, box["y"] + (4 if upwards_to else box["height"] - 4))
        return False

    until(is_behind, what=f"{moved} is held behind {over}")


def test_waiting_tasks_are_put_in_another_order_by_buttons(
    site: Installation, sign_in: SignIn, page: Page, quiet: str
) -> None:
    sign_in(page, "admin")
    open_queue(page, site, quiet)
    page.evaluate("window.isSamePage = true")
    last = line(page)[-1]

    page.get_by_role("button", name=f"First: {last}").click()

    first = page.locator("tbody tr").first
    expect(first).to_contain_text(last)
    expect(first).to_contain_text("Next")
    down = page.get_by_role("button", name=f"Down: {last}")
    down.click()
    expect(page.locator("tbody tr").nth(1)).to_contain_text(last)
    expect(first).to_contain_text("Next")
    expect(down).to_be_focused()
    assert page.evaluate("window.isSamePage") is True


def test_a_waiting_task_is_dragged_to_another_place(
    site: Installation, sign_in: SignIn, page: Page, quiet: str
) -> None:
    sign_in(page, "admin")
    open_queue(page, site, quiet)
    order = line(page)
    moved = order[-1]

    with page.expect_response(ORDER, timeout=scale_timeout_ms(60)) as answer:
        hold(page, moved, over=order[0], upwards_to=order[1])
        page.mouse.up()

    assert answer.value.status == 200
    page.reload()
    assert line(page) == [order[0], moved, *order[1:-1]]


def test_a_second_move_may_be_pressed_while_the_first_is_under_way(
    site: Installation, sign_in: SignIn, page: Page, quiet: str
) -> None:
    sign_in(page, "admin")
    open_queue(page, site, quiet)
    page.evaluate("window.isSamePage = true")
    order = line(page)
    moved = order[-1]

    up = page.get_by_role("button", name=f"Up: {moved}")
    up.evaluate("(button) => { button.click(); button.click(); }")

    expect(page.locator(NAMES)).to_have_text([*order[:-3], moved, *order[-3:-1]])
    assert page.evaluate("window.isSamePage") is True


@pytest.mark.parametrize(
    ("status", "words"),
    [(500, "Request failed"), (0, "The server did not answer")],
)
def test_a_move_that_fails_is_said_and_the_row_goes_back(
    site: Installation, sign_in: SignIn, page: Page, quiet: str, status: int, words: str
) -> None:
    def fail(route: Route) -> None:
        if status:
            route.fulfill(status=status)
        else:
            route.abort()

    sign_in(page, "admin")
    open_queue(page, site, quiet)
    order = line(page)
    page.route(ORDER, fail)

    hold(page, order[0], over=order[2])
    expect(page.locator(NAMES)).not_to_have_text(order)
    page.mouse.up()

    expect(page.get_by_role("alert")).to_contain_text(words)
    expect(page.locator(NAMES)).to_have_text(order)
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_whose_session_ended_is_led_to_the_page_to_sign_in(
    site: Installation, sign_in: SignIn, page: Page, quiet: str
) -> None:
    sign_in(page, "admin")
    open_queue(page, site, quiet)
    page.context.clear_cookies(name="sessionid")

    page.get_by_role("button", name=f"Down: {line(page)[0]}").click()

    page.wait_for_url(re.compile("/sign-in/"))
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_a_card_that_comes_during_a_drag_leaves_the_drop_as_it_was_meant(
    site: Installation, sign_in: SignIn, page: Page, quiet: str
) -> None:
    sign_in(page, "admin")
    open_queue(page, site, quiet)
    order = line(page)
    with page.expect_websocket() as opened:
        page.reload()
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")

    hold(page, order[0], over=order[-1])
    with opened.value.expect_event(
        "framereceived", lambda frame: "latecomer" in str(frame), timeout=scale_timeout_ms(60)
    ):
        site.manage("shell", "-c", LATE)
    page.mouse.up()

    expect(page.locator(NAMES)).to_have_text([*order[1:], order[0], "latecomer"])
    # And the last place among its equals, with another kind behind it.
    with page.expect_response(ORDER, timeout=scale_timeout_ms(60)) as answer:
        hold(page, order[1], over=order[0])
        page.mouse.up()
    assert "HX-Refresh" not in answer.value.all_headers()
    expect(page.locator(NAMES)).to_have_text([*order[2:], order[0], order[1], "latecomer"])


def test_a_task_moves_to_another_queue(
    site: Installation, sign_in: SignIn, page: Page, quiet: str
) -> None:
    sign_in(page, "dev")
    # Behind those that wait there for hours.
    page.goto(f"{site.address}/tasks/new/?queue=dev-4xgpu")
    page.get_by_label("Name").fill("goes elsewhere")
    page.get_by_label("Command").fill("sleep 600")
    page.get_by_role("button", name="Enqueue task").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("goes elsewhere")

    page.goto(f"{page.url}queue/")
    choice = page.get_by_label("Queue", exact=True)
    option = choice.get_by_role("option", name=re.compile(f"^{quiet}"))
    choice.select_option(option.get_attribute("value"))
    page.get_by_role("button", name="Move").click()

    expect(page.get_by_text(f"goes elsewhere waits in {quiet} now")).to_be_visible()
    open_queue(page, site, quiet)
    expect(page.get_by_role("link", name="goes elsewhere")).to_be_visible()
    open_queue(page, site, "dev-4xgpu")
    expect(page.get_by_role("link", name="goes elsewhere")).to_have_count(0)


def test_a_queue_is_paused_with_a_reason_and_goes_on(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    open_queue(page, site, "research-2xgpu")

    page.get_by_role("link", name="Pause…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("until the audit is over")
    dialog.get_by_role("button", name="Pause").click()

    expect(page.get_by_text("until the audit is over")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("link", name="Pause…")).to_be_visible()


def test_settings_of_a_queue_refuse_at_the_field(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    open_queue(page, site, "research-2xgpu")
    page.locator("#main").get_by_role("link", name="Settings").click()

    page.get_by_label("Name").fill("dev-4xgpu")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#id_name_error")).to_contain_text("taken")
    page.get_by_label("Name").fill("research-2xgpu")
    page.get_by_label("Time to stop").fill("45")
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_text("Saved. It applies from now on.")).to_be_visible()


def test_members_have_no_buttons_for_the_order(
    site: Installation, sign_in: SignIn, page: Page, quiet: str
) -> None:
    sign_in(page, "dev")
    open_queue(page, site, quiet)

    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^(First|Up|Down|Last): "))).to_have_count(0)
    expect(page.get_by_role("link", name="Pause…")).to_have_count(0)
    expect(page.locator("#main").get_by_role("link", name="Settings")).to_have_count(0)


def test_a_node_is_drained_and_resumed_on_its_page(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    page.goto(f"{site.address}/nodes/")
    page.locator("tbody a[href^='/nodes/']").first.click()
    expect(page.get_by_role("heading", name="Devices")).to_be_visible()

    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_text("Draining", exact=True)).to_be_visible()
    page.get_by_role("button", name="Resume").click()

    expect(page.get_by_text("Draining", exact=True)).to_have_count(0)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_what_a_manager_does_to_a_queue_is_readable_by_everybody(
    site: Installation,
    sign_in: SignIn,
    new_page: NewPage,
    axe: str,
    size: tuple[int, int],
    quiet: str,
) -> None:
    page = new_page(size=size)
    sign_in(page, "admin")
    open_queue(page, site, quiet)
    address = page.url
    found = violations(page, axe)

    for path in ("settings/", "pause/"):
        page.goto(address + path)
        found += violations(page, axe)
        if page.evaluate(OVERFLOW) > 0:
            found.append(f"{path} is wider than the window")

    assert found == []
