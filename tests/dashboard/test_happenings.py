"""What happened to a task, as lines."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.explaining import Names
from apps.dashboard.cards.happenings import steps_of
from apps.dashboard.selectors.history import History, task_history
from apps.events.models import Event
from apps.tasks.models import ReasonChange
from tests.cast import Example
from tests.dashboard.conftest import Submit

NAMES = Names({1: "H100"}, {}, {}, routing=(1,))
STRANGER = Names({}, {}, {}, routing=(1,))


def line(names: Names, kind: str, **data: object) -> tuple[str, str]:
    event = Event(kind=kind, data=data, at=timezone.now())
    (step,) = steps_of(History(attempts=(), events=(event,), reasons=()), names)
    return step.title, step.text


@pytest.mark.parametrize(
    ("kind", "data", "want"),
    [
        pytest.param(
            "task.allocated",
            {"pool": 1, "generation": 2, "standing": "reserved", "waits_for": 2},
            (
                "Allocated",
                "H100, attempt 2, within the reservation, starts once 2 tasks there have stopped",
            ),
            id="room that others leave first",
        ),
        pytest.param(
            "task.allocated",
            {"pool": 1, "generation": 1, "standing": "over_quota", "waits_for": 0},
            ("Allocated", "H100, attempt 1, over quota"),
            id="free room",
        ),
        pytest.param(
            "task.preempted",
            {"pool": 1, "generation": 1, "then": "queued"},
            ("Preempted", "H100, attempt 1, waits again in its old place"),
            id="preempted and requeued",
        ),
        pytest.param(
            "task.preempted",
            {"pool": 1, "then": "queued", "is_moved": True},
            ("Preempted", "H100, starts again on another node of its pool"),
            id="moved",
        ),
        pytest.param(
            "task.preempted",
            {"pool": 1, "then": "aborted"},
            ("Preempted", "H100, ended"),
            id="preempted and ended",
        ),
    ],
)
def test_an_event_is_a_line(kind: str, data: dict[str, object], want: tuple[str, str]) -> None:
    assert line(NAMES, kind, **data) == want
    assert line(STRANGER, kind, **data) == (want[0], want[1].replace("H100", "your first pool"))


@pytest.mark.django_db
def test_an_equal_task_behind_the_first_shows_what_both_wait_for(
    example: Example, alice: User, submit: Submit
) -> None:
    first, second = submit(alice, "first"), submit(alice, "second")
    assert first.run is not None
    first.run.head_id = first.pk
    first.run.save()
    data = {"reasons": [{"code": "no_pool"}]}
    for days in (1, 0):
        at = timezone.now() - timedelta(days=days)
        ReasonChange.objects.create(task=first, at=at, code="no_pool", data=data)
    second.refresh_from_db()

    lines = [
        [step.title for step in steps_of(task_history(task), NAMES)] for task in (first, second)
    ]

    # What was before it came is not its history.
    assert lines == [["Waiting", "Enqueued", "Waiting"], ["Waiting", "Enqueued"]]
