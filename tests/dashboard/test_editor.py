"""What the editor's page starts from, and who may see it."""

import json
import re
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.crypto import get_random_string

from apps.accounts.models import User
from apps.configuration.selectors import draft_document
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.provision import document_provision
from apps.dashboard.selectors import editor
from apps.policies.document import Document, parse
from apps.policies.models import DraftState
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.people import EXAMPLE, Example

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "static" / "src" / "js" / "editor").glob("*.js"))


def test_only_administrators_have_an_editor(
    example: Example, alice: User, charlie: User, root: User, client_for: ClientFor
) -> None:
    for name in ("resource_editor", "resource_editor_state"):
        path = reverse(name)

        assert Client().get(path).status_code == 302
        assert client_for(alice).get(path).status_code == 404
        assert client_for(charlie).get(path).status_code == 404
        assert client_for(root).get(path).status_code == 200
        assert client_for(root).post(path).status_code == 405


def test_the_page_starts_from_the_draft_and_the_figures_of_now(
    example: Example,
    root: User,
    alice: User,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    run_in(submit(alice, "first"), example.h100)
    submit(alice, "second")
    changed = {**EXAMPLE, "pools": [*EXAMPLE["pools"], {"name": "Cloud", "capacity": 200}]}
    draft_write(document=parse(changed), actor=root)

    html = client_for(root).get(reverse("resource_editor")).content.decode()
    found = re.search(r'<script id="editor-start"[^>]*>(.*?)</script>', html, re.DOTALL)
    start = json.loads(found[1] if found else "")

    state = start["state"]
    assert [pool["name"] for pool in state["draft"]["pools"]][-1] == "Cloud"
    assert [pool["name"] for pool in state["live"]["pools"]] == [
        "H100 Half a Superpod",
        "Bare Metal Low END GPUs",
    ]
    assert state["version"] == DraftState.objects.get().version
    assert (state["base_revision"], state["revision"], state["saved_by"]) == (1, 5, "root")
    pool = state["facts"]["pools"][str(example.h100.key)]
    assert pool["usage"] == {"gpu": 4000}
    assert state["facts"]["profiles"][str(example.profile.key)] == {
        "running": 1,
        "waiting": 1,
        "in": {str(example.h100.key): 1},
    }
    assert state["facts"]["queues"]["dev-4xgpu"] == {"policy": "Dev", "waiting": 1}
    assert start["choices"]["policies"] == ["Dev", "Research"]
    assert start["me"] == "root"


def test_signing_in_again_leaves_an_open_page_a_token_to_save_with(
    example: Example, root: User
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(root)
    state = reverse("resource_editor_state")
    old = client.get(state).json()["csrf"]
    client.cookies["csrftoken"] = get_random_string(32)  # as login() does
    document = json.dumps(client.get(state).json()["draft"])

    def save(token: str) -> int:
        headers = {"X-CSRFToken": token, "If-Match": "*"}
        return client.put(
            reverse("draft"), document, content_type="application/json", headers=headers
        ).status_code

    assert save(old) == 403
    assert save(client.get(state).json()["csrf"]) == 200


def test_whoever_saves_while_the_page_is_read_is_not_written_over(
    example: Example, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_late() -> Document:
        document = draft_document()
        draft_write(document=document, actor=root)
        return document

    monkeypatch.setattr(editor, "draft_document", read_late)

    read = editor.editor_state(root)

    assert read["version"] < DraftState.objects.get().version


def test_a_large_configuration_takes_as_many_queries_as_a_small_one(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    path = reverse("resource_editor")
    client.get(path)
    with CaptureQueriesContext(
        connection,
    ) as small:
        client.get(path)
    pools = [{"name": f"pool {number}", "capacity": 8} for number in range(12)]
    profiles = [
        {"name": f"profile {number}", "request": 1, "pools": [{"pool": f"pool {number % 12}"}]}
        for number in range(40)
    ]
    large = {
        "pools": [*EXAMPLE["pools"], *pools],
        "profiles": [*EXAMPLE["profiles"], *profiles],
    }
    draft_write(document=parse(large), actor=root)
    document_provision(actor=root)

    with CaptureQueriesContext(connection) as many:
        client.get(path)

    assert len(many) == len(small)


def test_every_icon_that_the_editor_names_is_in_the_sprite() -> None:
    listed = set((ROOT / "static" / "src" / "icons.txt").read_text(encoding="utf-8").split())
    named: set[str] = set()
    for module in MODULES:
        text = module.read_text(encoding="utf-8")
        named |= set(re.findall(r'\bicon\("([a-z0-9-]+)"', text))
        named |= set(re.findall(r'"(?:use|warn|wait|ok|bad)", "([a-z][a-z0-9-]+)"', text))

    assert {"pencil", "arrow-up-down", "corner-down-left"} - named == set()
    assert named - listed == set()


def test_modules_of_the_editor_stay_small() -> None:
    assert MODULES
    assert [path.name for path in MODULES if len(path.read_text().splitlines()) > 400] == []
