"""Statements that are compiled once answer as the queries that they are made of."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db.models import CharField
from django.utils import timezone

from apps.accounts.models import User
from apps.core.statements import Parameter, Statement, row_insert
from apps.tasks.models import Task

pytestmark = pytest.mark.django_db


def test_a_statement_is_built_once_and_gets_its_values_with_each_call() -> None:
    built = []

    def groups() -> Any:
        built.append(1)
        return Group.objects.exclude(name="50% of it's").filter(name=Parameter("name", CharField()))

    statement = Statement(groups)
    for name in ("one", "two", "50% of it's"):
        Group.objects.create(name=name)

    found = [statement.first(name=name) for name in ("one", "two", "50% of it's", "three")]

    assert [str(one) for one in found] == ["one", "two", "None", "None"]
    assert statement.rows(name="one") == [(Group.objects.get(name="one").pk, "one")]
    assert len(built) == 1


def test_a_row_is_stored_as_save_stores_it(alice: User) -> None:
    now = timezone.now()
    facts = {"owner": alice, "content": {"command": ["ü"]}, "tags": ["%s"], "created_at": now}
    saved, inserted = (Task(name="t", changed_at=now, **facts) for _ in range(2))

    saved.save(force_insert=True)
    row_insert(inserted)

    rows = [Task.objects.filter(pk=one.pk).values().get() | {"id": 0} for one in (saved, inserted)]
    assert rows[0] == rows[1]
    assert not inserted._state.adding
