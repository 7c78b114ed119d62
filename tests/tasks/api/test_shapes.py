"""The OpenAPI file says what is really read and answered."""

from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator

from apps.accounts.models import User
from apps.core.containers import AbortCallback
from apps.tasks.services.enqueue.submission import task_create
from apps.tasks.task_payloads import task_detail, task_summary
from apps.tasks.task_spec import RETRIES, TaskSpec, spec_of


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator().get_schema(public=True)["components"]["schemas"]  # type: ignore[no-untyped-call]  # untyped
    return found


def test_requests_have_the_fields_of_the_spec(schemas: dict[str, Any]) -> None:
    spec = schemas["TaskSpecRequest"]

    assert set(spec["properties"]) == set(TaskSpec.__struct_fields__)
    assert spec["required"] == ["name"]
    assert spec["properties"]["retries"]["maximum"] == RETRIES
    assert set(schemas["AbortCallback"]["properties"]) == set(AbortCallback.__struct_fields__)


def test_what_may_be_null_is_said_as_openapi_says_it(schemas: dict[str, Any]) -> None:
    fields = schemas["TaskSpecRequest"]["properties"]

    assert fields["replicas"]["nullable"]
    assert (fields["replicas"]["type"], fields["replicas"]["minimum"]) == ("integer", 1)
    assert fields["abort_callback"] == {
        "allOf": [{"$ref": "#/components/schemas/AbortCallback"}],
        "nullable": True,
    }
    assert "null" not in str(schemas["TaskSpecRequest"]).replace("nullable", "")


@pytest.mark.django_db
def test_answers_have_the_fields_that_are_announced(alice: User, schemas: dict[str, Any]) -> None:
    task = task_create(actor=alice, spec=spec_of({"name": "t"}))

    assert set(schemas["TaskSummary"]["properties"]) == set(task_summary(task))
    assert set(schemas["Task"]["properties"]) == set(task_detail(task, has_content=True))
    assert set(schemas["Task"]["properties"]) == set(task_detail(task, has_content=False))
