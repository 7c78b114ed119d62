"""The provisioned configuration in a browser: the board, its dialogs, history and YAML."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW, violations
from tests.end_to_end.installation import Installation
from tests.services.browser import DESKTOP, PHONE, NewPage

BOARD = "/settings/resources/"
HISTORY = "/settings/resources/history/"
POOL = "H100 Half a Superpod"


def on_board(page: Page, site: Installation) -> None:
    page.goto(site.address + BOARD)
    expect(page.locator("html")).to_have_attribute("data-live-state", "live")


def test_a_card_shows_its_own_connectors_and_fades_the_others(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    on_board(page, site)
    expect(page.get_by_role("link", name="Provisioned")).to_have_attribute("aria-current", "true")

    page.get_by_role("article", name="Profile 4xGPU", exact=True).focus()

    expect(page.locator(".wirelabel")).to_have_text(["2nd choice", "1st choice"])
    expect(page.locator(".wires path.hot")).to_have_count(2)
    assert page.locator(".wires path.dim").count() >= 2
    expect(page.get_by_role("article", name=f"Pool {POOL}")).to_have_class(re.compile("is-linked"))


def test_pool_info_names_queues_whose_ids_can_be_copied(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    sign_in(page, "admin")
    on_board(page, site)

    page.get_by_role("link", name=f"About {POOL}").click()
    dialog = page.get_by_role("dialog", name=POOL)
    dialog.get_by_role("button", name="Copy the id of queue dev-4xgpu").click()

    expect(dialog.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").isdigit()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("link", name=f"About {POOL}")).to_be_focused()


def test_a_pool_is_paused_and_resumed_on_its_card(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    on_board(page, site)
    card = page.get_by_role("article", name=f"Pool {POOL}")

    card.get_by_role("link", name=f"Pause {POOL}").click()
    dialog = page.get_by_role("dialog", name=f"Pause {POOL}?")
    dialog.get_by_label("Reason").fill("budget review")
    dialog.get_by_role("button", name="Pause").click()

    expect(card.get_by_text("Paused: budget review")).to_be_visible()
    card.get_by_role("button", name=f"Resume {POOL}").click()
    expect(card.get_by_text("budget review")).to_have_count(0)
    expect(card.get_by_role("link", name=f"Pause {POOL}")).to_be_visible()


def test_switching_off_is_guarded_by_what_it_stops(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    on_board(page, site)
    switch = page.get_by_role("switch", name="Resource management")

    switch.press(" ")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("go on and are supervised")
    dialog.get_by_role("link", name="Cancel").click()
    expect(dialog).to_be_hidden()
    expect(switch).to_be_checked()
    switch.click()
    dialog.get_by_role("button", name="Switch it off").click()

    expect(switch).not_to_be_checked()
    expect(page.get_by_text("Off: no task is admitted")).to_be_visible()
    switch.click()
    expect(switch).to_be_checked()


SAVE = """
import msgspec
from apps.accounts.models import User
from apps.configuration.selectors import draft_document
from apps.configuration.services.drafts import draft_write

draft = draft_document()
first = msgspec.structs.replace(draft.pools[0], description="saved meanwhile")
draft = msgspec.structs.replace(draft, pools=(first, *draft.pools[1:]))
draft_write(document=draft, actor=User.objects.get(username="demo-admin"))
"""


def test_what_somebody_saves_appears_by_itself_and_a_revision_is_restored(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    on_board(page, site)

    site.manage("shell", "-c", SAVE)

    note = page.get_by_text("Saved, not provisioned: 1 change by demo-admin")
    expect(note).to_be_visible()
    newest = site.manage(
        "shell",
        "-c",
        "from apps.configuration.models import Revision; print(Revision.objects.first().number)",
    )
    page.goto(f"{site.address}{HISTORY}{newest.split()[-1]}/")
    page.get_by_role("link", name="Restore into the draft…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 saved change of the draft is discarded")
    dialog.get_by_role("button", name="Restore").click()
    expect(page.get_by_text("The draft is now as revision")).to_be_visible()
    on_board(page, site)
    expect(note).to_have_count(0)


def test_two_revisions_are_chosen_and_compared(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "admin")
    # However many others have made meanwhile.
    page.goto(f"{site.address}{HISTORY}?before=4")

    page.get_by_role("radio", name="From revision 1", exact=True).check()
    page.get_by_role("radio", name="To revision 3", exact=True).check()
    page.get_by_role("button", name="Compare").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Revision 3")
    expect(page.get_by_role("heading", name="Difference to revision 1")).to_be_visible()
    expect(page.get_by_text("added").first).to_be_visible()


def test_the_document_is_downloaded_changed_and_imported(
    site: Installation, sign_in: SignIn, page: Page, tmp_path: Path
) -> None:
    sign_in(page, "admin")
    page.goto(f"{site.address}/settings/resources/yaml/")
    with page.expect_download() as download:
        page.get_by_role("link", name="Live, with policies").click()
    document = download.value.path().read_text()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(document.replace("capacity:", "capacityy:", 1))

    page.get_by_label("File").set_input_files(wrong)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("pools[0].capacityy is not a known field")).to_be_visible()
    page.get_by_label("Or its text").fill(document)
    page.get_by_role("button", name="Import").click()

    expect(page.get_by_text("The draft is what you imported")).to_be_visible()


def test_members_see_their_profiles_and_nothing_of_the_configuration(
    site: Installation, sign_in: SignIn, page: Page
) -> None:
    sign_in(page, "dev")
    on_board(page, site)

    expect(page.get_by_role("article", name="Profile 4xGPU", exact=True)).to_be_visible()
    expect(page.get_by_text(POOL)).to_have_count(0)
    expect(page.get_by_role("link", name="History")).to_have_count(0)
    expect(page.get_by_role("switch")).to_have_count(0)
    page.goto(site.address + HISTORY)
    expect(page.get_by_role("heading", level=1)).to_have_text("Page not found")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_dialogs_of_the_board_and_of_history_are_readable_by_everybody(
    site: Installation,
    sign_in: SignIn,
    new_page: NewPage,
    axe: str,
    size: tuple[int, int],
) -> None:
    page = new_page(size=size)
    sign_in(page, "admin")
    on_board(page, site)
    found: list[str] = []

    for link in (f"About {POOL}", f"Pause {POOL}"):
        page.get_by_role("link", name=link).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        found += violations(page, axe)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
    for path in ("3/", "3/restore/"):
        page.goto(site.address + HISTORY + path)
        found += violations(page, axe)
        if page.evaluate(OVERFLOW) > 0:
            found.append(f"{path} is wider than the window")

    assert found == []
