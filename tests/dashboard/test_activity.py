"""What stands next to the chart of the overview: events, top users, nodes with problems."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.dashboard.cards.activity import Activity, load_activity
from apps.dashboard.cards.node_problems import MOST_NODES, NodeProblems, load_node_problems
from apps.dashboard.render import card_render
from apps.events.services import event_record
from apps.nodes.models import RETIRED_INDEX, Device, DeviceState, Node, NodeState
from apps.tasks.models import AttemptUse, Task
from tests.allocation.state import make_node
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db


def happened(kind: str, task: Task, **data: object) -> None:
    assert task.queue is not None
    event_record(
        kind,
        actor=None,
        object_type="task",
        object_id=task.pk,
        queue_id=task.queue_id,
        policy_id=task.queue.policy_id,
        data=data,
    )


@pytest.fixture
def busy(
    example: Example,
    alice: User,
    bob: User,
    charlie: User,
    submit: Submit,
    run_in: RunIn,
) -> list[Task]:
    """Alice holds 4 GPUs, Bob 8, Charlie 4; each of these tasks started, then one failed."""
    tasks = [
        submit(alice, "a"),
        submit(bob, "b1"),
        submit(bob, "b2"),
        submit(charlie, "theirs", queue=example.research_queue.name),
    ]
    for task in tasks:
        run_in(task, example.h100, since=timezone.now() - timedelta(hours=1))
        happened("task.allocated", task)
        happened("task.running", task)
    happened("task.failed", tasks[0], exit_code=137)
    return tasks


def events(activity: Activity) -> list[tuple[str, str, str]]:
    return [(one.title, one.name, one.text) for one in activity.events]


@pytest.mark.usefixtures("busy")
def test_members_see_what_happened_to_tasks_of_their_queues(
    alice: User, charlie: User, client_for: ClientFor
) -> None:
    assert events(load_activity(alice)) == [
        ("Failed", "a", "Dev, exit code 137"),
        ("Running", "b2", "Dev"),
        ("Running", "b1", "Dev"),
        ("Running", "a", "Dev"),
    ]
    assert events(load_activity(charlie)) == [("Running", "theirs", "Research")]
    page = client_for(charlie).get("/overview/activity/").content.decode()
    assert words_on(page, "Dev", "alice", "bob", "Audit log") == []


@pytest.mark.usefixtures("busy")
def test_administrators_see_changes_as_well(
    example: Example, root: User, client_for: ClientFor
) -> None:
    event_record(
        "policy.changed",
        actor=root,
        object_type="policy",
        object_id=example.dev.pk,
        data={"name": "Dev"},
    )

    activity = load_activity(root)

    assert events(activity)[:2] == [
        ("Policy changed", "Dev", "by root"),
        ("Failed", "a", "Dev, exit code 137"),
    ]
    assert activity.events[0].href == f"/settings/audit/?target=policy+{example.dev.pk}"
    assert client_for(root).get(activity.events[0].href).status_code == 200
    assert len(activity.events) == 8


@pytest.mark.usefixtures("busy")
def test_the_users_who_hold_the_most_come_first(root: User, alice: User, bob: User) -> None:
    users = load_activity(root).users

    assert [(one.usage.owner.username, one.usage.gpu, one.usage.tasks) for one in users] == [
        ("bob", 8000, 2),
        ("alice", 4000, 1),
        ("charlie", 4000, 1),
    ]
    assert [one.width for one in users] == ["100%", "50%", "50%"]
    assert users[0].href == f"/settings/people/{bob.pk}/"
    seen = load_activity(alice).users
    assert [(one.usage.owner.username, one.href) for one in seen] == [("bob", ""), ("alice", "")]


@pytest.mark.usefixtures("busy")
def test_tasks_that_do_not_use_their_gpus_are_named(
    busy: list[Task], root: User, charlie: User, client_for: ClientFor
) -> None:
    assert "Held but idle" not in text(client_for(root).get("/overview/activity/"))
    now = timezone.now()
    AttemptUse.objects.create(
        attempt=busy[1].attempts.get(),
        **dict.fromkeys(("sampled_ms", "known_ms"), 3_600_000),
        **dict.fromkeys(("busy", "process_ms", "energy_mj", "memory_mb"), 0),
        sampled_at=now,
        used_at=now - timedelta(minutes=40),
    )

    [idle] = load_activity(root).idle
    assert (idle.name, idle.gpus) == ("b1", "4")
    assert "b1 Dev, bob 4 GPU idle for 40 min" in text(client_for(root).get("/overview/activity/"))
    assert load_activity(charlie).idle == ()


def test_somebody_without_permissions_sees_neither(client_for: ClientFor) -> None:
    outsider = User.objects.create(username="outsider")

    assert events(load_activity(outsider)) == []
    assert load_activity(outsider).users == ()
    assert "/overview/activity/" not in client_for(outsider).get("/").content.decode()


def test_the_number_of_queries_does_not_grow(
    example: Example, root: User, alice: User, submit: Submit, run_in: RunIn
) -> None:
    def count(user: User) -> int:
        with CaptureQueriesContext(connection) as found:
            load_activity(user)
        return len(found)

    first = submit(alice, "first")
    run_in(first, example.h100)
    happened("task.running", first)
    few = [count(root), count(alice)]
    for number in range(6):
        task = submit(alice, f"t{number}")
        run_in(task, example.h100)
        happened("task.running", task)

    assert [count(root), count(alice)] == few


# --- nodes ---------------------------------------------------------------------------------------


def problems(root: User) -> NodeProblems:
    found = load_node_problems(root, "")
    assert isinstance(found, NodeProblems)
    return found


def test_nodes_with_problems_come_first(
    example: Example, root: User, client_for: ClientFor
) -> None:
    for name in "abcdefgh":
        make_node(example.h100, name=name)
    Node.objects.filter(name="h").update(state=NodeState.SUSPECT, state_detail="no answer")
    Device.objects.filter(node__name="g").update(state=DeviceState.MISSING)
    Node.objects.filter(name="f").update(is_draining=True)

    found = problems(root)

    assert [(one.row.node.name, one.word.text) for one in found.rows[:4]] == [
        ("h", "Suspect"),
        ("g", "8 GPUs missing"),
        ("f", "Takes no new tasks"),
        ("a", "Healthy"),
    ]
    assert (len(found.rows), found.problems, found.nodes) == (MOST_NODES, 3, 8)
    assert "3 of 8 need attention" in text(client_for(root).get("/"))


def test_a_replaced_gpu_is_no_problem_and_in_no_list(
    example: Example, root: User, client_for: ClientFor
) -> None:
    make_node(example.h100, name="a")
    old = Device.objects.filter(node__name="a").latest("index")
    Device.objects.filter(pk=old.pk).update(state=DeviceState.MISSING, index=RETIRED_INDEX + old.pk)

    found = problems(root)

    assert (found.problems, found.rows[0].row.label) == (0, "7 GPUs: 7 free")
    assert "7 GPUs: 7 free" in client_for(root).get("/nodes/").content.decode()


def test_nodes_are_for_administrators(
    example: Example, alice: User, quinn: User, client_for: ClientFor
) -> None:
    make_node(example.h100, name="secret-node")

    for person in (alice, quinn):
        assert card_render("node_problems", "", person) is None
        assert words_on(client_for(person).get("/").content.decode(), "secret-node") == []
