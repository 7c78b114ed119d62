"""A machine is added as a node, gets another host key, and is removed, in a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import SignIn
from tests.browser.pages import OVERFLOW, violations
from tests.end_to_end.installation import Installation
from tests.services.sshd import SshdNode, kill_helpers
from tests.services.timeouts import scale_timeout_ms

NAME = "far"
# A key's file in the server's own folder.
KEY = "far-key"
# Reaching the machine, the helper's way there and every check.
EXAMINED_WITHIN_S = 120


@pytest.fixture
def machine(site: Installation, ssh_node: SshdNode) -> Iterator[SshdNode]:
    """A real sshd, to which the installation has the key; nothing of it is left there."""
    kept = Path(site.environment["RPM_HOME"]) / KEY
    shutil.copy(ssh_node.key_path, kept)
    kept.chmod(0o600)
    yield ssh_node
    kept.unlink()
    kill_helpers(ssh_node.home)


def described(page: Page, machine: SshdNode, **changes: str) -> None:
    """Fill in the form of the page."""
    fields = {
        "name": NAME,
        "address": machine.address,
        "port": str(machine.port),
        "user": machine.user,
        "key": KEY,
        "state_dir": machine.home,
    }
    for name, value in (fields | changes).items():
        page.locator(f"#id_{name}").fill(value)
    page.locator("#id_runtime").select_option("process")
    page.locator("#id_allows_process").check()


def test_a_machine_becomes_a_node_gets_another_host_key_and_goes(
    site: Installation, machine: SshdNode, page: Page, sign_in: SignIn, axe: str
) -> None:
    page.set_default_timeout(scale_timeout_ms(EXAMINED_WITHIN_S))
    expect.set_options(timeout=scale_timeout_ms(EXAMINED_WITHIN_S))
    sign_in(page, "admin")
    page.goto(f"{site.address}/nodes/")
    page.get_by_role("link", name="Add node").first.click()
    expect(page.get_by_text("node prepare --public-key").first).to_be_visible()

    add(page, machine, axe)
    detail = page.url
    replace_host_key(page, machine)
    remove(page)

    assert page.goto(detail).status == 404  # type: ignore[union-attr]  # it is another address
    page.goto(f"{site.address}/nodes/")
    expect(page.get_by_role("link", name=NAME, exact=True)).to_have_count(0)


def add(page: Page, machine: SshdNode, axe: str) -> None:
    described(page, machine, port="1")
    page.get_by_role("button", name="Connect").click()
    expect(page.locator("#id_address_error")).to_be_visible()
    # What was filled in stays.
    expect(page.locator("#id_name")).to_have_value(NAME)

    page.locator("#id_port").fill(str(machine.port))
    page.get_by_role("button", name="Connect").click()
    expect(page.get_by_text(machine.host_key.fingerprint)).to_be_visible()
    assert not Path(machine.home).exists(), "nothing was sent to the machine"

    page.get_by_role("button", name="Confirm and check the machine").click()
    expect(page.get_by_role("heading", name="4. Preflight checks")).to_be_focused()
    expect(page.get_by_text("Fix:").first).to_be_visible()
    assert page.evaluate(OVERFLOW) == 0
    assert violations(page, axe) == []

    page.get_by_role("button", name="Add node").click()
    expect(page.get_by_role("heading", name=NAME)).to_be_visible()
    expect(page.get_by_text(f"{NAME} is added.")).to_be_visible()


def replace_host_key(page: Page, machine: SshdNode) -> None:
    old = machine.host_key.fingerprint
    machine.stop()
    machine.change_host_key()
    machine.start()

    page.get_by_role("link", name="Host key").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(old)).to_be_visible()
    expect(dialog.get_by_text(machine.host_key.fingerprint)).to_be_visible()
    dialog.get_by_role("button", name="Pin the new key").click()

    expect(page.get_by_text(f"{NAME} has a new host key.")).to_be_visible()
    assert machine.host_key.fingerprint != old


def remove(page: Page) -> None:
    page.get_by_role("link", name="Remove").click()
    expect(page.get_by_text(f"Remove node {NAME}?")).to_be_visible()
    page.get_by_role("button", name="Remove node").click()
    expect(page.get_by_text(f"{NAME} is removed.")).to_be_visible()
