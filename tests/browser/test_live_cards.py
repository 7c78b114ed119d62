"""Cards that change by themselves: buttons do what they say, and times go on."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.end_to_end.installation import Installation, until
from tests.services.timeouts import scale_timeout_ms

RUNNING = """
from apps.tasks.models import Task
task = Task.objects.filter(name__startswith="lasting-", state="running").first()
print(task.pk if task else "")
"""
ABORT_OTHERS = """
from apps.tasks.models import Task
from apps.tasks.services.stop import task_abort
alive = ("queued", "allocated", "running")
for task in Task.objects.exclude(name__startswith="lasting-").filter(state__in=alive):
    task_abort(actor=task.owner, task=task)
"""
ABORT = """
from apps.tasks.models import Task
from apps.tasks.services.stop import task_abort
task = Task.objects.get(pk="{pk}")
task_abort(actor=task.owner, task=task)
"""
ENQUEUE_AGAIN = """
from apps.tasks.models import Task
from apps.tasks.services.enqueue.submission import task_run_again
task = Task.objects.get(pk="{pk}")
task_run_again(actor=task.owner, task=task)
"""


@pytest.fixture
def running_task(site: Installation) -> str:
    """The id of a task that does not end by itself; what runs before it is aborted."""
    site.manage("shell", "-v", "0", "-c", ABORT_OTHERS)
    return until(lambda: site.manage("shell", "-v", "0", "-c", RUNNING).strip(), what="a task runs")


def test_after_a_live_update_each_button_does_what_it_says(
    site: Installation, sign_in: SignIn, page: Page, running_task: str
) -> None:
    sign_in(page, "dev")
    page.goto(f"{site.address}/tasks/{running_task}/")
    expect(page.get_by_role("button", name="Abort…")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")
    page.evaluate("window.isSamePage = true")

    # By another process, so that only the card changes: the page stays.
    site.manage("shell", "-c", ABORT.format(pk=running_task))
    again = page.get_by_role("button", name="Run again")
    expect(again).to_be_visible(timeout=scale_timeout_ms(60))
    assert page.evaluate("window.isSamePage") is True
    with page.expect_navigation():
        again.click()

    # A plain button became one that opens a dialog: on the same page once more.
    site.manage("shell", "-c", ABORT.format(pk=running_task))
    expect(again).to_be_visible(timeout=scale_timeout_ms(60))
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")
    page.evaluate("window.isSamePage = true")
    site.manage("shell", "-c", ENQUEUE_AGAIN.format(pk=running_task))
    abort = page.get_by_role("button", name="Abort…")
    expect(abort).to_be_visible(timeout=scale_timeout_ms(60))
    assert page.evaluate("window.isSamePage") is True
    abort.click()
    expect(page.get_by_role("dialog")).to_be_visible()


def test_times_of_a_running_task_go_on_while_nothing_happens(
    site: Installation, sign_in: SignIn, page: Page, running_task: str
) -> None:
    page.clock.install()
    sign_in(page, "dev")
    page.goto(f"{site.address}/tasks/{running_task}/")
    timeline = page.get_by_role("region", name="Timeline")
    running = timeline.locator("b", has=page.locator("time")).first
    ran = page.get_by_role("region", name="Attempts").locator("tbody tr").first.locator("time")
    expect(ran).to_be_visible()
    waiting_share = timeline.locator("rect.tl-wait").first
    before = (running.inner_text(), ran.inner_text(), waiting_share.get_attribute("width"))

    page.clock.fast_forward("03:00:00")

    for place, text in ((running, before[0]), (ran, before[1])):
        expect(place).not_to_have_text(text)
        expect(place).to_contain_text("3 h")
    expect(waiting_share).not_to_have_attribute("width", before[2] or "")


@pytest.mark.parametrize("card", ["node_rows", "node_detail"])
def test_the_last_answer_of_a_node_stays_true(
    site: Installation, sign_in: SignIn, page: Page, card: str
) -> None:
    page.clock.install()
    sign_in(page, "admin")
    page.goto(f"{site.address}/nodes/")
    if card == "node_detail":
        page.locator("td a.id").first.click()
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")

    with page.expect_response(lambda answer: f"/live/{card}/" in answer.url) as answer:
        page.clock.run_for(15_000)

    assert answer.value.status in {200, 304}
