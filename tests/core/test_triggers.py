"""Rules that the database itself enforces, for every client."""

import pytest
from django.db import DatabaseError, transaction

from apps.core.triggers import edges_condition
from apps.events.models import Event
from apps.events.services import event_record


def test_the_condition_names_every_legal_edge() -> None:
    condition = edges_condition({"b": frozenset({"c", "a"}), "a": frozenset()})

    assert condition.endswith("NOT IN ('b>a', 'b>c')")


@pytest.mark.django_db
@pytest.mark.parametrize("column", ["kind", "object_id", "data"])
def test_an_event_is_never_changed(column: str) -> None:
    event_record("task.queued", actor=None, object_type="task", object_id=1)
    value = {"made": "up"} if column == "data" else "forged"

    with pytest.raises(DatabaseError), transaction.atomic():
        Event.objects.update(**{column: value})

    assert Event.objects.get().kind == "task.queued"
