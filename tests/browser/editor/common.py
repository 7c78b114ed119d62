"""What tests of the editor have in common."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.end_to_end.installation import Client

PASSWORD = "a long sentence for tests"
EDITOR = "/settings/resources/edit/"
DRAFT = "/configuration/draft/"
EXAMPLE: dict[str, Any] = {
    "pools": [
        {"name": "H100", "capacity": {"gpu": "64", "cpu": "1792"}},
        {"name": "Bare Metal", "capacity": 60},
    ],
    "profiles": [
        {"name": "2xGPU", "request": 2, "pools": [{"pool": "H100"}]},
        {"name": "4xGPU", "request": 4, "pools": [{"pool": "Bare Metal"}, {"pool": "H100"}]},
        {"name": "8xGPU", "request": 8, "pools": [{"pool": "H100"}]},
    ],
}
Open = Callable[..., Page]


def put(client: Client, document: object) -> None:
    client.put(DRAFT, document, **{"If-Match": "*"})


def provision(client: Client, document: object) -> None:
    put(client, document)
    client.post(f"{DRAFT}provision/", {})


def ready(page: Page) -> None:
    expect(page.locator("#editor")).to_have_attribute("data-ready", "")


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("article", name=name, exact=True)


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


def save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Saved. It is not live until you provision.")).to_be_visible()


def rows(page: Page, order: str) -> Locator:
    return page.get_by_role("region", name=f"{order} order").get_by_role("listitem")


def names(client: Client, kind: str, name: str, field: str) -> list[str]:
    """What stands in a list of one entry of the live document."""
    document = client.get("/configuration/")
    entry = next(one for one in document[kind] if one["name"] == name)
    return [one if isinstance(one, str) else one["pool"] for one in entry[field]]
