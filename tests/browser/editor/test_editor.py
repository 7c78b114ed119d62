"""The editor of the resource configuration, as administrators use it."""

import re

from playwright.sync_api import Dialog, Page, expect

from tests.browser.editor.common import (
    DRAFT,
    EDITOR,
    Open,
    card,
    dialog,
    put,
    rows,
    save,
)
from tests.end_to_end.installation import Client, Installation


def test_what_the_server_refuses_stands_at_its_field(example: Client, open_editor: Open) -> None:
    page = open_editor()
    page.get_by_role("button", name="Add pool", exact=True).click()
    name, gpus = (dialog(page).get_by_role("textbox", name=n) for n in ("Name", "GPUs"))
    expect(page.get_by_text("Count whole GPUs; shares are set in profiles.")).to_be_visible()

    name.fill("h100")
    gpus.fill("1.0005")
    page.keyboard.press("Enter")

    expect(gpus).to_have_attribute("aria-invalid", "true")
    expect(gpus).to_be_focused()
    expect(gpus).to_have_accessible_description(re.compile("decimal places"))
    name.fill("cloud")
    gpus.fill("8.5")
    page.keyboard.press("Enter")
    expect(gpus).to_have_accessible_description(re.compile("count whole GPUs"))
    name.fill("h100")
    gpus.fill("8")
    page.keyboard.press("Enter")
    expect(name).to_have_accessible_description(re.compile("'h100' is the name of two pools"))
    name.fill("Cloud")
    page.keyboard.press("Enter")
    expect(card(page, "Pool Cloud")).to_contain_text("New")


def test_a_dynamic_profile_keeps_its_bounds(example: Client, open_editor: Open) -> None:
    page = open_editor()
    page.get_by_role("button", name="Edit 4xGPU").click()
    box = dialog(page)
    box.get_by_label("Dynamic: a task may bring its own request").check()
    box.get_by_role("textbox", name="GPUs, minimum").fill("8")
    box.get_by_role("button", name="Apply to the draft").click()
    expect(box.get_by_role("textbox", name="GPUs, minimum")).to_have_accessible_description(
        re.compile("above the request")
    )

    box.get_by_role("textbox", name="GPUs, minimum").fill("1")
    box.get_by_role("textbox", name="GPUs, maximum").fill("8")
    box.get_by_role("button", name="Apply to the draft").click()
    expect(box).to_have_count(0)
    save(page)

    saved = example.get(DRAFT)["profiles"][1]
    assert (saved["request_min"], saved["request"], saved["request_max"]) == (
        {"gpu": "1"},
        {"gpu": "4"},
        {"gpu": "8"},
    )


def test_a_second_link_of_the_same_name_is_refused(example: Client, open_editor: Open) -> None:
    page = open_editor()
    four = card(page, "Profile 4xGPU")
    four.get_by_role("button", name="H100", exact=True).click()
    name = dialog(page).get_by_role("textbox", name="Name of the link")
    name.fill("bare metal")
    page.keyboard.press("Enter")

    expect(name).to_have_accessible_description(re.compile("has a link named “Bare Metal” already"))

    name.fill("overflow")
    page.keyboard.press("Enter")
    expect(dialog(page)).to_have_count(0)
    expect(four).to_contain_text("H100 as overflow")
    page.get_by_role("button", name="Connect a pool to 2xGPU").click()
    dialog(page).get_by_label("Bare Metal").check()
    link = dialog(page).get_by_role("textbox", name="Name of the link")
    expect(link).to_have_value("Bare Metal")
    link.fill("H100")
    page.keyboard.press("Enter")
    expect(link).to_have_accessible_description(re.compile("has a link named “H100” already"))


def test_dragging_a_profile_onto_a_pool_connects_it(example: Client, open_editor: Open) -> None:
    page = open_editor()
    drag_profile(page, "2xGPU", "Bare Metal")

    expect(page.get_by_text("2xGPU connected to Bare Metal, its 2nd choice.")).to_be_visible()
    expect(card(page, "Profile 2xGPU").locator(".linkrow")).to_have_count(2)
    page.get_by_role("button", name="Undo").click()
    expect(card(page, "Profile 2xGPU").locator(".linkrow")).to_have_count(1)
    expect(page.get_by_role("button", name="0 changes")).to_be_visible()


def drag_profile(page: Page, profile: str, pool: str) -> None:
    start = card(page, f"Profile {profile}").locator("[data-drag-profile] h3").bounding_box()
    end = card(page, f"Pool {pool}").locator("header").bounding_box()
    assert start is not None
    assert end is not None
    page.mouse.move(start["x"] + 5, start["y"] + 5)
    page.mouse.down()
    page.mouse.move(start["x"] + 40, start["y"] - 40)
    page.mouse.move(end["x"] + 20, end["y"] + 10, steps=4)
    expect(card(page, f"Pool {pool}")).to_have_class(re.compile("is-target|is-refused"))
    page.mouse.up()


def test_all_three_orders_move_by_hand_and_by_keys(example: Client, open_editor: Open) -> None:
    page = open_editor()
    execution = rows(page, "Execution")
    expect(execution).to_have_text([re.compile("2xGPU"), re.compile("4xGPU"), re.compile("8xGPU")])

    execution.nth(2).focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(execution.nth(1)).to_contain_text("8xGPU")
    expect(execution.nth(1)).to_be_focused()
    expect(execution.nth(1)).to_contain_text("was 3")
    expect(page.locator("#live-region")).to_have_text(
        "8xGPU is 2 of 3 in the execution order of H100"
    )
    page.get_by_role("button", name="Move 8xGPU up").click()
    expect(execution.nth(0)).to_contain_text("8xGPU")
    execution.nth(0).locator(".grip").drag_to(execution.nth(2))
    expect(execution).to_have_text([re.compile("2xGPU"), re.compile("4xGPU"), re.compile("8xGPU")])
    expect(page.get_by_role("button", name="0 changes")).to_be_visible()
    tiles = card(page, "Pool H100").locator(".tile")
    tiles.nth(0).drag_to(tiles.nth(2))
    expect(tiles.nth(2)).to_contain_text("2xGPU")
    page.get_by_label("Profile whose routing order is shown").select_option("4xGPU")
    page.get_by_role("button", name="Move H100 up").click()
    expect(rows(page, "Routing").nth(0)).to_contain_text("H100")
    save(page)

    assert example.get(DRAFT)["pools"][0]["profiles"] == ["4xGPU", "8xGPU", "2xGPU"]
    assert example.get(DRAFT)["profiles"][1]["pools"][0]["pool"] == "H100"


def test_every_way_to_reorder_is_undone_by_the_button_that_offers_it(
    example: Client, open_editor: Open
) -> None:
    page = open_editor()
    execution = rows(page, "Execution")
    tiles = card(page, "Pool H100").locator(".tile")
    undo = page.get_by_role("button", name="Undo", exact=True)
    want = [re.compile("2xGPU"), re.compile("4xGPU"), re.compile("8xGPU")]

    def by_button() -> None:
        page.get_by_role("button", name="Move 8xGPU up").click()

    def by_key() -> None:
        execution.nth(2).focus()
        page.keyboard.press("Alt+ArrowUp")

    def by_grip() -> None:
        execution.nth(0).locator(".grip").drag_to(execution.nth(2))

    def by_tile() -> None:
        tiles.nth(0).drag_to(tiles.nth(2))

    for move in (by_button, by_key, by_grip, by_tile):
        move()
        expect(page.get_by_role("button", name="0 changes")).to_have_count(0)
        undo.click()
        expect(execution).to_have_text(want)
        expect(tiles).to_have_text(want)
        expect(page.get_by_role("button", name="0 changes")).to_be_visible()
        expect(undo).to_have_count(0)


def test_findings_stand_at_the_card_that_they_concern(example: Client, open_editor: Open) -> None:
    page = open_editor()
    page.get_by_role("button", name="Disconnect 8xGPU from H100").click()
    page.get_by_role("button", name="Validate").click()

    expect(card(page, "Profile 8xGPU")).to_contain_text("is linked to no pool: link one")
    expect(card(page, "Pool H100")).to_contain_text("No node serves pool")
    page.get_by_role("button", name="Preview").click()
    expect(dialog(page)).to_contain_text("This cannot be provisioned.")
    expect(dialog(page).get_by_role("button", name="Provision revision")).to_be_disabled()


def test_a_pool_card_says_once_that_nobody_serves_it(example: Client, open_editor: Open) -> None:
    page = open_editor()
    said = card(page, "Pool H100").get_by_text("No node serves")
    expect(said).to_have_count(1)

    page.get_by_role("button", name="Validate").click()

    expect(said).to_have_text(re.compile("the pool admits nothing"))
    expect(said).to_have_count(1)


def test_provision_is_offered_only_when_nothing_is_unsaved(
    example: Client, open_editor: Open
) -> None:
    page = open_editor()
    offer = page.get_by_role("button", name="Provision…")
    expect(offer).to_be_disabled()

    page.get_by_role("button", name="Delete 2xGPU").click()
    expect(offer).to_be_disabled()
    page.get_by_role("button", name="Preview").click()
    expect(dialog(page)).to_contain_text("Save first")
    page.get_by_role("button", name="Close").click()
    save(page)
    expect(offer).to_be_enabled()
    page.get_by_role("button", name="Reset…").click()
    page.get_by_role("button", name="Reset the draft").click()

    expect(card(page, "Profile 2xGPU")).to_be_visible()
    expect(offer).to_be_disabled()
    assert len(example.get("/configuration/")["profiles"]) == 3


def test_the_second_to_save_sees_who_changed_what(
    example: Client, ben: Client, open_editor: Open
) -> None:
    page = open_editor()
    theirs = ben.get(DRAFT)
    theirs["pools"][0]["description"] = "From Ben."
    put(ben, theirs)

    page.get_by_role("button", name="Disconnect 4xGPU from H100").click()
    page.get_by_role("button", name="Save", exact=True).click()

    expect(dialog(page)).to_contain_text("ben saved first")
    expect(dialog(page)).to_contain_text("ben changed pool H100: description changed")
    expect(dialog(page)).to_contain_text("4xGPU: disconnected from H100")
    assert ben.get(DRAFT)["pools"][0]["description"] == "From Ben."
    dialog(page).get_by_role("button", name="Put both together").click()
    expect(card(page, "Pool H100")).to_contain_text("From Ben.")
    save(page)
    together = ben.get(DRAFT)
    assert together["pools"][0]["description"] == "From Ben."
    assert [link["pool"] for link in together["profiles"][1]["pools"]] == ["Bare Metal"]


def test_leaving_with_unsaved_changes_asks(
    empty: Installation, example: Client, open_editor: Open
) -> None:
    page = open_editor()
    page.get_by_role("button", name="Delete 2xGPU").click()

    page.get_by_role("link", name="Exit").click()
    expect(dialog(page)).to_contain_text("Leave without saving?")
    dialog(page).get_by_role("button", name="Cancel").click()
    asked: list[str] = []

    def stay(one: Dialog) -> None:
        asked.append(one.type)
        one.dismiss()

    page.once("dialog", stay)
    page.get_by_role("link", name="Queues").first.click()
    expect(page).to_have_url(re.compile(EDITOR))
    assert asked == ["beforeunload"]

    page.get_by_role("link", name="Exit").click()
    dialog(page).get_by_role("button", name="Save and leave").click()
    expect(page).to_have_url(re.compile(r"/resources/$"))
    assert [one["name"] for one in example.get(DRAFT)["profiles"]] == ["4xGPU", "8xGPU"]
