"""Large configurations, and what holds for every part of the editor."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.editor.common import EDITOR, Open, card, dialog, put, ready
from tests.browser.pages import OVERFLOW, violations
from tests.end_to_end.installation import Client
from tests.services.browser import DESKTOP, PHONE


def large() -> dict[str, Any]:
    pools = [{"name": f"Pool {number:02}", "capacity": 64} for number in range(1, 13)]
    profiles = [
        {
            "name": f"Profile {number:02}",
            "request": 1,
            "pools": [{"pool": f"Pool {(number + step) % 12 + 1:02}"} for step in range(3)],
        }
        for number in range(1, 41)
    ]
    return {"pools": pools, "profiles": profiles}


def test_forty_profiles_are_a_matrix_that_the_keyboard_edits(
    example: Client, open_editor: Open
) -> None:
    put(example, large())
    page = open_editor()
    grid = page.get_by_role("grid")
    expect(grid.get_by_role("row")).to_have_count(41)

    page.get_by_label("Find a card").fill("profile 3")
    expect(grid.get_by_role("row")).to_have_count(11)
    page.get_by_label("Find a card").fill("")
    cell = grid.get_by_role("gridcell", name=re.compile("^Profile 01 in Pool 02: "))
    expect(cell).to_have_accessible_name("Profile 01 in Pool 02: routing 1 and execution 1")
    cell.focus()
    page.keyboard.press("Delete")
    expect(cell).to_have_accessible_name("Profile 01 in Pool 02: not connected")
    page.keyboard.press("3")
    expect(page.get_by_label("Routing rank of Pool 02 for Profile 01")).to_have_value("3")
    page.keyboard.press("Tab")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    expect(cell).to_have_accessible_name(re.compile("Pool 02: routing 3 and execution 2"))
    below = grid.get_by_role("gridcell", name=re.compile("^Profile 02 in Pool 02: "))
    expect(below).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(
        grid.get_by_role("gridcell", name=re.compile("^Profile 02 in Pool 03: "))
    ).to_be_focused()
    page.get_by_role("button", name="Board", exact=True).click()
    expect(card(page, "Profile Profile 40")).to_be_attached()
    page.get_by_label("Find a card").fill("nonsense")
    page.get_by_role("button", name="Clear filter").click()
    expect(card(page, "Pool Pool 12")).to_be_attached()


# What the page does while a card is dragged: it marks one pool and bends one thread.
WATCH = """() => {
  window.seen = [];
  new MutationObserver((records) => {
    for (const one of records) {
      window.seen.push(`${one.type} ${one.attributeName ?? ""} ${one.target.nodeName}`);
    }
  }).observe(document.getElementById("editor"), {
    subtree: true, childList: true, attributes: true, characterData: true,
  });
}"""


def test_while_a_card_of_a_large_board_is_dragged_nothing_is_drawn_again(
    example: Client, open_editor: Open
) -> None:
    put(example, large())
    page = open_editor(path=f"{EDITOR}?view=board")
    first = card(page, "Profile Profile 01")
    box = first.locator("[data-drag-profile] h3").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 30, box["y"] - 30)
    target = card(page, "Pool Pool 01")
    end = target.locator("header").bounding_box()
    assert end is not None
    page.evaluate(WATCH)

    page.mouse.move(end["x"] + 30, end["y"] + 10, steps=30)
    expect(target).to_have_class(re.compile("is-target"))
    seen = set(page.evaluate("window.seen"))
    page.mouse.up()

    assert seen <= {"attributes class ARTICLE", "attributes class HEADER", "attributes d path"}
    expect(first.locator(".linkrow")).to_have_count(4)


def test_no_dialog_opens_by_itself(example: Client, open_editor: Open) -> None:
    page = open_editor()
    expect(dialog(page)).to_have_count(0)
    page.get_by_role("button", name="Edit 2xGPU").click()
    page.keyboard.press("Escape")
    expect(dialog(page)).to_have_count(0)
    expect(page.get_by_role("button", name="Edit 2xGPU")).to_be_focused()

    page.reload()
    ready(page)
    page.get_by_role("button", name="Matrix", exact=True).click()
    expect(page.get_by_role("grid")).to_be_visible()
    expect(dialog(page)).to_have_count(0)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_dialogs_and_both_views_are_readable_by_everybody(
    example: Client, open_editor: Open, axe: str, size: tuple[int, int]
) -> None:
    found = []
    page = open_editor(size=size)
    page.get_by_role("button", name="Delete 2xGPU").click()
    page.get_by_role("button", name="Validate").click()
    expect(page.get_by_text("each stands at its card")).to_be_visible()
    found += check_accessibility(page, axe)
    for opens in ("Add pool", "Add profile", "Settings", "Reset…", "Connect a pool to 4xGPU"):
        page.get_by_role("button", name=opens).click()
        expect(dialog(page)).to_be_visible()
        found += check_accessibility(page, axe)
        page.keyboard.press("Escape")
    page.get_by_role("button", name="Preview").click()
    expect(dialog(page).get_by_role("button", name="Run again")).to_be_enabled()
    found += check_accessibility(page, axe)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Matrix", exact=True).click()
    expect(page.get_by_role("grid")).to_be_visible()
    found += check_accessibility(page, axe)

    assert found == []


def check_accessibility(page: Page, axe: str) -> list[str]:
    wide = page.evaluate(OVERFLOW)
    return violations(page, axe) + ([f"{wide} px too wide"] if wide > 0 else [])


MERGE = """async () => {
  const { fromData, toData, editPool } = await import("/static/dist/js/editor/document.js");
  const { differences } = await import("/static/dist/js/editor/differences.js");
  const { merged } = await import("/static/dist/js/editor/merge.js");
  const start = JSON.parse(document.getElementById("editor-start").textContent);
  const base = fromData(start.state.draft);
  const renamed = editPool(base, base.pools[1].key, { name: "Metal" });
  const other = editPool(base, base.pools[1].key, { capacity: { gpu: "10" } });
  return {
    renamed: toData(renamed).profiles[1].pools,
    said: differences(base, renamed).map((one) => `${one.label}: ${one.before}, ${one.after}`),
    both: toData(merged(base, other, renamed)).pools[1],
  };
}"""


def test_a_rename_follows_everywhere_and_two_peoples_changes_fit_together(
    example: Client, open_editor: Open
) -> None:
    found = open_editor().evaluate(MERGE)

    assert found["renamed"][0] == {"pool": "Metal", "name": "Metal"}
    assert found["said"] == ["Name: Bare Metal, Metal"]
    assert (found["both"]["name"], found["both"]["capacity"]) == ("Metal", {"gpu": "10"})


def test_every_icon_of_the_editor_is_drawn(example: Client, open_editor: Open) -> None:
    page = open_editor()
    page.get_by_role("button", name="Preview").click()
    expect(dialog(page).get_by_role("button", name="Run again")).to_be_enabled()

    missing = page.evaluate(
        """async () => {
          const sprite = await (await fetch("/static/dist/icons.svg")).text();
          const ids = [...document.querySelectorAll("#editor use")].map(
            (one) => one.getAttribute("href").split("#")[1]);
          return [...new Set(ids)].filter((id) => !sprite.includes(`id="${id}"`));
        }"""
    )

    assert json.dumps(missing) == "[]"
