"""Addresses of REST that do not exist, and its schema."""

from pathlib import Path

import pytest
import yaml
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from apps.accounts.models import User

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["", "nothing", "tasks/a/b/c/", "tasks/..%2Fqueues/"])
def test_an_address_that_does_not_exist_answers_in_the_shape_of_errors(
    client: Client, method: str, path: str
) -> None:
    answer = client.generic(method, f"/api/v1/{path}")

    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"
    assert answer.json()["request_id"] == answer["X-Request-ID"]


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["schema/", "schema/?format=json", "docs/", "docs/?script="])
def test_the_schema_is_for_those_who_are_signed_in(client: Client, path: str) -> None:
    assert client.get(f"/api/v1/{path}").status_code in (401, 403)


@pytest.mark.django_db
def test_the_schema_is_built_once_in_a_process(
    client: Client, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(alice)
    first = client.get("/api/v1/schema/")
    other = client.get("/api/v1/schema/", headers={"accept": "application/json"})
    monkeypatch.delattr(SchemaGenerator, "get_schema")

    again = client.get("/api/v1/schema/")
    as_json = client.get("/api/v1/schema/", {"format": "json", "lang": "de", "version": "x"})

    written = (ROOT / "docs" / "openapi.yaml").read_bytes()
    assert first.content == again.content == written
    assert first["Content-Type"].startswith("application/vnd.oai.openapi")
    assert other.content == as_json.content
    assert as_json.json() == yaml.safe_load(written)
