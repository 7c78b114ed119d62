"""What happened to a task, as lines."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.explanation import ReaderNames
from apps.dashboard.cards.tasks import TaskSummaryCard, load_task_summary
from apps.dashboard.cards.timeline import timeline_entries
from apps.dashboard.render import card_render
from apps.dashboard.selectors.task_history import TaskHistory, task_history
from apps.events.models import Event
from apps.tasks.lifecycle.states import AttemptState
from apps.tasks.models import Attempt, Member, ReasonChange, Task
from apps.tasks.services.stop import task_dequeue
from tests.dashboard.conftest import RunIn, Submit
from tests.people import Example

NAMES = ReaderNames({1: "H100"}, {}, {7: "Nightly"}, routing=(1,))
OTHER_TENANT = ReaderNames({}, {}, {}, routing=(1,))


def line(names: ReaderNames, kind: str, **data: object) -> tuple[str, str]:
    event = Event(kind=kind, data=data, at=timezone.now())
    (entry,) = timeline_entries(
        TaskHistory(attempts=(), events=(event,), reasons=()), names, has_content=True
    )
    return entry.title, entry.text


@pytest.mark.parametrize(
    ("kind", "data", "want"),
    [
        pytest.param(
            "task.allocated",
            {"pool": 1, "generation": 2, "tier": "reserved", "waits_for": 2},
            (
                "Allocated",
                "H100, attempt 2, reserved, starts once 2 tasks there have stopped",
            ),
            id="capacity of victims that stop first",
        ),
        pytest.param(
            "task.allocated",
            {"pool": 1, "generation": 1, "tier": "over_quota", "waits_for": 0},
            ("Allocated", "H100, attempt 1, over quota"),
            id="free capacity",
        ),
        pytest.param(
            "task.preempted",
            {"pool": 1, "generation": 1, "then": "queued"},
            ("Preempted", "H100, attempt 1, queued again in its old place"),
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
            ("Preempted", "H100, aborted"),
            id="preempted and aborted",
        ),
        pytest.param(
            "task.queued",
            {
                "pool": 1,
                "generation": 1,
                "exit_code": 143,
                "detail": "Preempted by a task with a better tier or priority.",
            },
            (
                "Queued again",
                (
                    "Preempted by a task with a better tier or priority, H100, attempt 1, "
                    "exit code 143"
                ),
            ),
            id="a sentence that goes on",
        ),
        pytest.param(
            "task.stopping",
            {"pool": 1, "generation": 1, "reason": "Its time limit of 200 s is over."},
            ("Stopping", "Its time limit of 200 s is over, H100, attempt 1"),
            id="why it is stopped",
        ),
        pytest.param(
            "task.idle_warning",
            {"generation": 1, "idle_minutes": 30, "minutes_left": 1},
            (
                "Idle warning",
                (
                    "attempt 1, all its GPUs idle for 30 minutes, "
                    "it is stopped in 1 minute if it stays idle"
                ),
            ),
            id="an idle task that will be stopped",
        ),
        pytest.param("task.draft", {}, ("Created", ""), id="a new draft"),
        pytest.param("task.draft", {"from": "queued"}, ("Dequeued", ""), id="a draft again"),
        pytest.param(
            "task.priority",
            {"from": 0, "to": 3},
            ("Priority changed", "from 0 to 3"),
            id="another priority",
        ),
    ],
)
def test_an_event_is_a_line(kind: str, data: dict[str, object], want: tuple[str, str]) -> None:
    assert line(NAMES, kind, **data) == want
    assert line(OTHER_TENANT, kind, **data) == (want[0], want[1].replace("H100", "your first pool"))


def test_queues_are_named_as_far_as_the_reader_sees_them() -> None:
    moved = Event(kind="task.moved", data={"queue_before": 7, "queue": 8}, at=timezone.now())
    enqueued = Event(kind="task.queued", queue_id=7, data={"from": "draft"}, at=timezone.now())
    history = TaskHistory(attempts=(), events=(moved, enqueued), reasons=())

    seen = [(one.title, one.text) for one in timeline_entries(history, NAMES, has_content=True)]
    hidden = [
        (one.title, one.text) for one in timeline_entries(history, OTHER_TENANT, has_content=True)
    ]

    assert set(seen) == {("Moved", "from Nightly to another queue"), ("Enqueued", "in Nightly")}
    assert set(hidden) == {("Moved", "from another queue to another queue"), ("Enqueued", "")}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("reader", "want"), [("alice", "another team"), ("charlie", "Research"), ("root", "Research")]
)
def test_a_preemption_says_for_whose_task_as_far_as_the_reader_may_know(
    example: Example,
    submit: Submit,
    run_in: RunIn,
    reader: str,
    want: str,
    request: pytest.FixtureRequest,
) -> None:
    alice, charlie = request.getfixturevalue("alice"), request.getfixturevalue("charlie")
    victim = run_in(submit(alice, "victim"), example.h100)
    theirs = submit(charlie, "taker", queue=example.research_queue.name)
    beneficiary = run_in(theirs, example.h100)
    Attempt.objects.filter(pk=victim.pk).update(stops_for=beneficiary)
    data = {"generation": 1, "then": "queued"}
    Event.objects.create(
        kind="task.preempted", object_type="task", object_id=str(victim.task_id), data=data
    )
    names = ReaderNames.of(request.getfixturevalue(reader), victim.task)

    entries = timeline_entries(task_history(victim.task), names, has_content=True)

    (text,) = (entry.text for entry in entries if entry.title == "Preempted")
    assert text == f"for a task of {want}, attempt 1, queued again in its old place"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "member", "want"),
    [
        pytest.param({"exit_code": 0}, {"exit_code": 0}, "Finished", id="it ended well"),
        pytest.param({"exit_code": 1}, {"exit_code": 1}, "Failed", id="it failed"),
        pytest.param(
            {"exit_code": 143, "is_preempted": True, "stop_target": "queued"},
            {"exit_code": 143, "is_stop_asked": True},
            "Preempted",
            id="it was preempted",
        ),
        pytest.param(
            {"exit_code": 0, "is_preempted": True, "stop_target": "queued"},
            {"exit_code": 0, "is_stop_asked": True},
            "Preempted",
            id="it was preempted and saved its state",
        ),
        pytest.param(
            {"exit_code": 0, "is_preempted": True, "stop_target": "queued"},
            {"exit_code": 0},
            "Finished",
            id="it ended before its node heard of the preemption",
        ),
        pytest.param(
            {"exit_code": 0, "stop_target": "aborted"},
            {"exit_code": 0, "is_stop_asked": True},
            "Stopped",
            id="somebody aborted it",
        ),
        pytest.param(
            {"exit_code": 143, "stop_target": "failed"},
            {"exit_code": 143, "is_stop_asked": True},
            "Failed",
            id="it ran longer than its time limit",
        ),
    ],
)
def test_an_attempt_that_is_over_says_how_it_ended(
    example: Example,
    alice: User,
    submit: Submit,
    run_in: RunIn,
    changes: dict[str, object],
    member: dict[str, object],
    want: str,
) -> None:
    attempt = run_in(submit(alice, "eval"), example.h100)
    Attempt.objects.filter(pk=attempt.pk).update(state=AttemptState.FINISHED, **changes)
    Member.objects.filter(attempt=attempt).update(**member)

    card = load_task_summary(alice, str(attempt.task_id))

    assert isinstance(card, TaskSummaryCard)
    assert [str(row.word.text) for row in card.attempts] == [want]


@pytest.mark.django_db
def test_where_it_runs_is_said_in_the_readers_words(
    example: Example, alice: User, root: User, submit: Submit, run_in: RunIn
) -> None:
    task = run_in(submit(alice, "eval"), example.bare_metal).task

    heads = [card_render("task_summary", str(task.pk), who) for who in (alice, root)]

    assert ["In your first pool" in head.html for head in heads if head] == [True, False]
    assert [f"In {example.bare_metal.name}" in head.html for head in heads if head] == [False, True]


@pytest.mark.django_db
@pytest.mark.parametrize(("times", "want"), [(1, "once preempted"), (2, "2 times preempted")])
def test_the_story_counts_preemptions_in_words(
    alice: User, submit: Submit, times: int, want: str
) -> None:
    task = submit(alice, "eval")
    Task.objects.filter(pk=task.pk).update(preemptions=times)

    card = card_render("task_timeline", str(task.pk), alice)

    assert card is not None
    assert want in " ".join(re.sub(r"<[^>]+>", " ", card.html).split())


@pytest.mark.django_db
def test_an_equal_task_behind_the_first_shows_what_both_wait_for(
    example: Example, alice: User, submit: Submit
) -> None:
    first, second = submit(alice, "first"), submit(alice, "second")
    assert first.task_group is not None
    first.task_group.head_id = first.pk
    first.task_group.save()
    data = {"reasons": [{"code": "no_pool"}]}
    for days in (1, 0):
        at = timezone.now() - timedelta(days=days)
        ReasonChange.objects.create(task=first, at=at, code="no_pool", data=data)
    second.refresh_from_db()

    lines = [
        [entry.title for entry in timeline_entries(task_history(task), NAMES, has_content=True)]
        for task in (first, second)
    ]

    # What was before it came is not its history.
    assert lines == [["Waiting", "Enqueued", "Waiting"], ["Waiting", "Enqueued"]]


@pytest.mark.django_db
@pytest.mark.parametrize("card", ["task_timeline", "task_summary"])
def test_a_dequeued_task_names_the_pools_of_the_queue_that_it_left(
    example: Example, alice: User, submit: Submit, run_in: RunIn, card: str
) -> None:
    task = submit(alice, "train")
    attempt = run_in(task, example.h100)
    Event.objects.create(
        kind="task.allocated",
        object_type="task",
        object_id=str(task.pk),
        queue_id=attempt.queue_id,
        data={"pool": example.h100.pk},
    )
    Attempt.objects.update(state="finished", ended_at=timezone.now())
    Task.objects.update(state="queued")
    task_dequeue(actor=alice, task=task)

    Member.objects.all().delete()
    shown = card_render(card, str(task.pk), alice)

    assert shown is not None
    assert "your second pool" in shown.html
    assert "another pool" not in shown.html
