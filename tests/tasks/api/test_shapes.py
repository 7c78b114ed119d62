"""The OpenAPI file says what is really read and answered."""

import msgspec
import pytest

from apps.accounts.models import User
from apps.tasks.api.serializers import (
    AbortCallbackSerializer,
    DescriptionSerializer,
    TaskSerializer,
    TaskSummarySerializer,
)
from apps.tasks.descriptions import AbortCallback, Description, description_of
from apps.tasks.services.enqueue.submission import task_create
from apps.tasks.task_payloads import task_detail, task_summary


def test_requests_have_the_fields_of_descriptions() -> None:
    assert set(DescriptionSerializer().fields) == set(Description.__struct_fields__)
    assert set(AbortCallbackSerializer().fields) == set(AbortCallback.__struct_fields__)
    required = {name for name, field in DescriptionSerializer().fields.items() if field.required}
    wanted = {field.name for field in msgspec.structs.fields(Description) if field.required}
    assert required == wanted


@pytest.mark.django_db
def test_answers_have_the_fields_that_are_announced(alice: User) -> None:
    task = task_create(actor=alice, description=description_of({"name": "t"}))

    assert set(TaskSummarySerializer().fields) == set(task_summary(task))
    assert set(TaskSerializer().fields) == set(task_detail(task, has_content=True))
    assert set(TaskSerializer().fields) == set(task_detail(task, has_content=False))
