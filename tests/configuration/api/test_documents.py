"""Live and draft configuration, and revisions, through REST."""

import pytest
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.configuration.api import documents
from apps.configuration.models import Revision
from apps.configuration.selectors import draft_document, live_document
from apps.configuration.services.drafts import draft_write
from apps.policies.document import Document
from apps.policies.models import LiveState
from tests.configuration.api.common import V1, SignIn
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_the_draft_goes_all_the_way_to_live(admin: APIClient, example: Example) -> None:
    read = admin.get(f"{V1}/configuration/draft/")
    document = read.json()
    document["pools"][0]["capacity"] = "16"

    saved = admin.put(
        f"{V1}/configuration/draft/", document, format="json", headers={"If-Match": read["ETag"]}
    )
    changes = admin.get(f"{V1}/configuration/draft/changes/").json()
    checked = admin.post(f"{V1}/configuration/draft/validate/").json()
    provisioned = admin.post(f"{V1}/configuration/draft/provision/", {"note": "More."})

    assert saved.status_code == 200
    assert saved.json()["pools"][0]["capacity"] == {"gpu": "16"}
    assert saved["ETag"] != read["ETag"]
    assert [c["sentence"] for c in changes["changes"]] == [
        "pool H100 Half a Superpod: capacity changed"
    ]
    assert changes["saved_by"] == "root"
    assert checked["errors"] == []
    assert {w["code"] for w in checked["warnings"]} == {"no_server"}
    assert provisioned.status_code == 201
    assert provisioned.json()["note"] == "More."
    assert live_document().pools[0].capacity == {"gpu": "16"}
    live = admin.get(f"{V1}/configuration/")
    assert live["ETag"] == f'"{LiveState.objects.get().version}"'
    assert [p["name"] for p in live.json()["policies"]] == ["Dev", "Research"]


def test_a_stale_if_match_is_412_and_changes_nothing(admin: APIClient, example: Example) -> None:
    read = admin.get(f"{V1}/configuration/draft/")
    document = read.json()
    document["pools"][0]["description"] = "One."
    put = f"{V1}/configuration/draft/"
    admin.put(put, document, format="json", headers={"If-Match": read["ETag"]})
    document["pools"][0]["description"] = "Two."

    late = admin.put(put, document, format="json", headers={"If-Match": read["ETag"]})
    without = admin.put(put, document, format="json")
    nonsense = admin.put(put, document, format="json", headers={"If-Match": '"x"'})

    assert late.status_code == 412
    assert late.json()["code"] == "stale"
    assert "root changed pool H100 Half a Superpod" in late.json()["detail"]
    assert without.status_code == 400
    assert "If-Match" in without.json()["fields"]
    assert nonsense.status_code == 412
    assert admin.get(put).json()["pools"][0]["description"] == "One."


def test_whoever_saves_while_the_draft_is_read_is_not_written_over(
    admin: APIClient, example: Example, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{V1}/configuration/draft/"

    def read_late() -> Document:
        document = draft_document()
        draft_write(document=document, actor=root)
        return document

    monkeypatch.setattr(documents, "draft_document", read_late)
    read = admin.get(path)
    monkeypatch.undo()

    late = admin.put(path, read.json(), format="json", headers={"If-Match": read["ETag"]})
    assert late.status_code == 412


def test_reset_throws_the_draft_away(admin: APIClient, example: Example) -> None:
    read = admin.get(f"{V1}/configuration/draft/")
    document = read.json() | {"profiles": [], "pools": []}
    admin.put(
        f"{V1}/configuration/draft/", document, format="json", headers={"If-Match": read["ETag"]}
    )

    reset = admin.post(f"{V1}/configuration/draft/reset/")

    assert reset.json() == read.json()


def test_validate_names_what_provisioning_would_close(admin: APIClient, example: Example) -> None:
    document = admin.get(f"{V1}/configuration/draft/").json()
    document["profiles"] = document["profiles"][1:]
    for pool in document["pools"]:
        pool["profiles"] = []

    found = admin.post(f"{V1}/configuration/draft/validate/", document, format="json").json()

    removed = [w["detail"] for w in found["warnings"] if w["code"] == "removes_profile"]
    assert removed == [
        (
            "Provisioning removes profile '4xGPU' and closes its queues: dev-4xgpu, "
            "research-4xgpu. 0 waiting tasks become drafts."
        )
    ]


def test_reservations_beyond_what_can_be_reached_are_warned_of(
    admin: APIClient, example: Example
) -> None:
    admin.patch(f"{V1}/policies/{example.dev.pk}/", {"reserved": 12})

    found = admin.post(f"{V1}/configuration/draft/validate/").json()

    assert [w["detail"] for w in found["warnings"] if w["code"] == "reserved_beyond_capacity"] == [
        "'Dev' (12), 'Research' (8) reserve 20 GPU together; the pools that they reach have 16."
    ]


def test_yaml_goes_out_and_in(admin: APIClient, example: Example) -> None:
    read = admin.get(f"{V1}/configuration/draft/", headers={"Accept": "application/yaml"})
    text = read.content.decode().replace("description: ''", "description: From YAML.", 1)

    saved = admin.put(
        f"{V1}/configuration/draft/",
        text,
        content_type="application/yaml",
        headers={"If-Match": read["ETag"]},
    )

    assert read["Content-Type"].startswith("application/yaml")
    assert saved.status_code == 200
    assert saved.json()["pools"][0]["description"] == "From YAML."


def test_revisions_are_compared_and_restored(admin: APIClient, example: Example) -> None:
    first = Revision.objects.latest("number").number
    admin.patch(f"{V1}/policies/{example.dev.pk}/", {"weight": 3})

    listed = admin.get(f"{V1}/configuration/revisions/").json()["results"]
    compared = admin.get(f"{V1}/configuration/revisions/{first}/compare/?with={first + 1}")
    restored = admin.post(f"{V1}/configuration/revisions/{first}/restore/")

    assert listed[0]["number"] == first + 1
    assert listed[0]["note"] == "Policy Dev changed: weight."
    assert compared.json()["changes"] == [
        {
            "kind": "policies",
            "name": "Dev",
            "what": "changed",
            "field": "weight",
            "before": 1,
            "after": 3,
            "sentence": "policy Dev: weight changed",
        }
    ]
    assert restored.json()["notes"] == []
    assert admin.get(f"{V1}/configuration/revisions/{first}/compare/").status_code == 400


def test_only_administrators_see_the_whole_configuration(
    api_as: SignIn, alice: User, quinn: User, example: Example
) -> None:
    for path in ("", "draft/", "draft/changes/", "revisions/", "revisions/1/"):
        for person in (alice, quinn):
            assert api_as(person).get(f"{V1}/configuration/{path}").status_code == 403
        assert APIClient().get(f"{V1}/configuration/{path}").status_code == 401


def test_the_switch_is_thrown(admin: APIClient, api_as: SignIn, alice: User) -> None:
    refused = api_as(alice).patch(f"{V1}/configuration/", {"is_enabled": False})
    thrown = admin.patch(f"{V1}/configuration/", {"is_enabled": False})

    assert refused.status_code == 403
    assert thrown.json() == {"is_enabled": False}
    assert not LiveState.objects.get().is_enabled


def test_a_key_that_stands_twice_is_refused(admin: APIClient, example: Example) -> None:
    url = f"{V1}/configuration/draft/"
    read = admin.get(url)
    texts = {
        "application/json": '{"schema": 1, "pools": [], "profiles": [], "pools": []}',
        "application/yaml": "schema: 1\npools: []\nprofiles: []\npools: []\n",
    }
    for kind, text in texts.items():
        answer = admin.generic("PUT", url, text, kind, headers={"If-Match": read["ETag"]})

        assert answer.status_code == 400
        assert "'pools'" in answer.json()["detail"]
        assert "twice" in answer.json()["detail"]
        assert list(answer.json()["fields"]) == ["body"]
    assert admin.get(url)["ETag"] == read["ETag"]
