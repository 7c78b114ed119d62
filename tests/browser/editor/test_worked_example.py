"""The worked example, from nothing in the browser alone, with its clicks counted."""

import re

from playwright.sync_api import Page, expect

from tests.browser.editor.common import PASSWORD, Open, card, dialog, names, ready, save
from tests.end_to_end.installation import Client, Installation
from tests.services.browser import NewPage

# The aim for the whole example is fewer.
MOST_CLICKS = 60
COUNT = "addEventListener('pointerdown', () => window.countClick(), true)"


class Clicks:
    """Counts what a person presses; choosing in a list is two, opening and choosing."""

    def __init__(self) -> None:
        self.number = 0

    def of(self, page: Page) -> Page:
        page.expose_function("countClick", self.add)
        page.add_init_script(COUNT)
        return page

    def add(self, number: int = 1) -> None:
        self.number += number

    def choose(self, page: Page, label: str, option: str) -> None:
        page.get_by_label(label, exact=True).select_option(option)
        self.add(2)


def test_the_worked_example_is_built_from_nothing(
    empty: Installation, nothing: Client, open_editor: Open, new_page: NewPage
) -> None:
    dana = empty.person("dana", "dev", password=PASSWORD)
    empty.person("rosa", "research", password=PASSWORD)
    clicks = Clicks()
    page = clicks.of(open_editor())
    page.reload()
    ready(page)

    pools_and_profiles(page)
    links_and_orders(page, clicks)
    provision_it(page)
    expect_it_live(nothing)
    for name in ("Dev", "Research"):
        policy(page, clicks, name)
    task_is_enqueued(empty, clicks, new_page)

    [task] = dana.get("/tasks/")["results"]
    assert (task["name"], task["queue"], task["state"]) == ("first", "dev-4xgpu", "queued")
    assert clicks.number < MOST_CLICKS, f"{clicks.number} clicks"
    print(f"{clicks.number} clicks")  # noqa: T201  # the figure is wanted with `pytest -s`


def pools_and_profiles(page: Page) -> None:
    expect(page.get_by_text("No pool yet")).to_be_visible()
    add(page, "pool", "H100 Half a Superpod", "64")
    add(page, "pool", "Bare Metal Low END GPUs", "60")
    for name, gpus in (("8xGPU", "8"), ("2xGPU", "2"), ("4xGPU", "4"), ("0.5xGPU", "0.5")):
        add(page, "profile", name, gpus)


def add(page: Page, kind: str, name: str, gpus: str) -> None:
    page.get_by_role("button", name=f"Add {kind}", exact=True).click()
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_role("textbox", name="GPUs").fill(gpus)
    page.keyboard.press("Enter")
    expect(card(page, f"{kind.capitalize()} {name}")).to_be_visible()


def links_and_orders(page: Page, clicks: Clicks) -> None:
    page.get_by_role("button", name="Connect a profile to H100").click()
    for name in ("8xGPU", "2xGPU", "4xGPU", "0.5xGPU"):
        dialog(page).get_by_label(name).check()
    page.get_by_role("button", name="Connect 4", exact=True).click()
    page.get_by_role("button", name="Connect a profile to Bare Metal").click()
    dialog(page).get_by_label("4xGPU").check()
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(dialog(page)).to_have_count(0)
    clicks.choose(page, "Profile whose routing order is shown", "4xGPU")
    page.get_by_role("button", name="Move Bare Metal Low END GPUs up").click()
    clicks.choose(page, "Pool whose execution order is shown", "H100 Half a Superpod")
    page.get_by_role("button", name="Move 4xGPU up").click()


def provision_it(page: Page) -> None:
    save(page)
    page.get_by_role("button", name="Provision…").click()
    page.get_by_label("Note for the history").fill("The worked example.")
    page.get_by_role("button", name=re.compile(r"Provision revision \d+")).click()
    expect(page.get_by_text(re.compile(r"Revision \d+ is live\."))).to_be_visible()
    expect(page.get_by_role("button", name="0 changes")).to_be_visible()


def expect_it_live(admin: Client) -> None:
    live = admin.get("/configuration/")
    h100, bare_metal = live["pools"]
    assert (h100["name"], bare_metal["name"]) == ("H100 Half a Superpod", "Bare Metal Low END GPUs")
    assert h100["profiles"] == ["8xGPU", "4xGPU", "2xGPU", "0.5xGPU"]
    assert names(admin, "profiles", "4xGPU", "pools") == [bare_metal["name"], h100["name"]]
    latest = admin.get("/configuration/revisions/", limit=1)["results"][0]
    assert latest["note"] == "The worked example."


def policy(page: Page, clicks: Clicks, name: str) -> None:
    page.get_by_role("link", name="Policies").first.click()
    page.get_by_role("link", name="Create policy").first.click()
    dialog(page).get_by_label("Name").fill(name)
    clicks.choose(page, "Group", name.lower())
    dialog(page).get_by_label("Reservation, GPU").fill("32")
    dialog(page).get_by_label("Limit, GPU").fill("64")
    dialog(page).get_by_role("button", name="Save policy").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    page.get_by_role("link", name="Connect profile…").click()
    clicks.choose(page, "Profile", "4xGPU")
    expect(dialog(page).get_by_label("Queue name")).to_have_value(f"{name.lower()}-4xgpu")
    dialog(page).get_by_role("button", name="Connect profile").click()
    expect(page.get_by_text(f"4xGPU is connected as {name.lower()}-4xgpu.")).to_be_visible()


def task_is_enqueued(site: Installation, clicks: Clicks, new_page: NewPage) -> None:
    page = new_page()
    page.goto(f"{site.address}/sign-in/")
    page.get_by_label("Username").fill("dana")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    clicks.of(page)
    page.goto(f"{site.address}/")
    page.get_by_role("link", name="Enqueue task").click()
    page.get_by_label("Name").fill("first")
    page.get_by_role("radio", name="dev-4xgpu").check()
    page.get_by_label("Command").fill("sleep 60")
    page.get_by_role("button", name="Enqueue task").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("first")
    expect(page.get_by_text("Queued").first).to_be_visible()
