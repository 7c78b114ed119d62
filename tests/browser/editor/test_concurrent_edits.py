"""The editor where somebody else, another tab or the network comes in between."""

from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.browser.editor.common import (
    DRAFT,
    EXAMPLE,
    Open,
    card,
    dialog,
    provision,
    put,
    ready,
    save,
)
from tests.end_to_end.installation import Client

STATE = "**/settings/resources/edit/state/"


def linked(client: Client, name: str) -> list[tuple[str, str]]:
    profile = next(one for one in client.get(DRAFT)["profiles"] if one["name"] == name)
    return [(link["pool"], link["name"]) for link in profile["pools"]]


def together(page: Page) -> None:
    dialog(page).get_by_role("button", name="Put both together").click()
    save(page)


def test_two_links_of_one_profile_are_put_together(
    example: Client, ben: Client, open_editor: Open
) -> None:
    pools = [*EXAMPLE["pools"], {"name": "A100", "capacity": 8}]
    provision(example, {**EXAMPLE, "pools": pools})
    page = open_editor()
    theirs = ben.get(DRAFT)
    theirs["profiles"][0]["pools"].append({"pool": "A100", "name": "A100"})
    theirs["pools"][2]["profiles"].append("2xGPU")
    put(ben, theirs)

    page.get_by_role("button", name="Connect a pool to 2xGPU").click()
    dialog(page).get_by_label("Bare Metal").check()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Edit H100").click()
    dialog(page).get_by_role("textbox", name="Name").fill("H200")
    page.keyboard.press("Enter")
    expect(card(page, "Pool H200")).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(dialog(page)).to_contain_text("2xGPU: connected to A100")
    expect(dialog(page).get_by_text("Both", exact=True)).to_have_count(0)
    together(page)

    assert linked(ben, "2xGPU") == [
        ("H200", "H200"),
        ("A100", "A100"),
        ("Bare Metal", "Bare Metal"),
    ]
    assert linked(ben, "4xGPU") == [("Bare Metal", "Bare Metal"), ("H200", "H200")]
    assert ben.get(DRAFT)["pools"][2]["profiles"] == ["2xGPU"]


def test_what_one_removed_and_the_other_changed_is_shown(
    example: Client, ben: Client, open_editor: Open
) -> None:
    page = open_editor()
    theirs = ben.get(DRAFT)
    theirs["profiles"] = [one for one in theirs["profiles"] if one["name"] != "8xGPU"]
    theirs["pools"][0]["profiles"].remove("8xGPU")
    put(ben, theirs)

    page.get_by_role("button", name="Edit 8xGPU").click()
    dialog(page).get_by_role("textbox", name="Description").fill("For the large ones.")
    dialog(page).get_by_role("button", name="Apply to the draft").click()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(dialog(page).get_by_role("listitem").filter(has_text="Both")).to_have_count(2)
    together(page)

    assert linked(ben, "8xGPU") == [("H100", "H100")]


def test_the_same_changes_that_another_person_saved_need_no_second_save(
    example: Client, ben: Client, open_editor: Open
) -> None:
    page = open_editor()
    page.get_by_role("button", name="Delete 2xGPU").click()
    theirs = ben.get(DRAFT)
    theirs["profiles"] = [one for one in theirs["profiles"] if one["name"] != "2xGPU"]
    theirs["pools"][0]["profiles"].remove("2xGPU")
    put(ben, theirs)

    button = page.get_by_role("button", name="Save", exact=True)
    button.click()

    expect(page.get_by_text("has saved the same changes. Nothing is left")).to_be_visible()
    expect(button).to_be_disabled()


def test_who_signed_in_again_in_another_tab_can_still_save(
    example: Client, open_editor: Open
) -> None:
    page = open_editor()
    token: Any = next(c for c in page.context.cookies() if c["name"] == "csrftoken")
    token["value"] = "a" * 32  # login() makes another one, too
    page.context.add_cookies([token])

    page.get_by_role("button", name="Delete 2xGPU").click()
    save(page)

    assert [one["name"] for one in example.get(DRAFT)["profiles"]] == ["4xGPU", "8xGPU"]


def test_a_late_answer_from_before_a_save_changes_nothing(
    example: Client, open_editor: Open
) -> None:
    page = open_editor()
    page.clock.install()
    page.reload()
    ready(page)
    held: list[tuple[Route, Any]] = []
    page.route(STATE, lambda route: held.append((route, route.fetch())))
    with page.expect_request(STATE):
        page.clock.run_for(15_000)
    page.get_by_role("button", name="Delete 2xGPU").click()
    save(page)

    [(route, answer)] = held
    with page.expect_event("requestfinished"):
        route.fulfill(response=answer)
    page.evaluate("() => fetch(location.href).then((one) => one.text())")

    expect(card(page, "Profile 4xGPU")).to_be_visible()
    expect(card(page, "Profile 2xGPU")).to_have_count(0)


def test_of_a_lost_answer_nobody_says_that_nothing_happened(
    example: Client, open_editor: Open
) -> None:
    page = open_editor()
    page.get_by_role("button", name="Delete 2xGPU").click()
    save(page)

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route("**/draft/provision/", lose)
    page.get_by_role("button", name="Provision…").click()
    dialog(page).get_by_role("button", name="Provision revision").click()

    expect(dialog(page).get_by_role("alert")).to_contain_text("The change may have been made")
    dialog(page).get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="0 changes")).to_be_visible()
    assert len(example.get("/configuration/")["profiles"]) == 2


def test_entries_are_deleted_by_keys_in_the_matrix(example: Client, open_editor: Open) -> None:
    page = open_editor("/settings/resources/edit/?view=matrix")
    page.locator("[data-cell]").first.focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Delete 2xGPU")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Delete 2xGPU")).to_have_count(0)

    page.get_by_role("button", name="Delete Bare Metal").press("Enter")

    expect(page.get_by_role("columnheader", name="Bare Metal")).to_have_count(0)
    expect(page.get_by_role("columnheader", name="H100")).to_be_visible()
