"""Tasks that hold GPUs without using them, and what readers see of how a task used its GPUs."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.dashboard.cards.gpu_use import GpuUseCurve
from apps.nodes.models import Device, Node
from apps.policies.models import Policy, Queue
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Attempt, AttemptUse, HeldDevice, IdleWarning, Member, Task
from apps.tasks.selectors.gpu_use import GpuUseStep
from apps.tasks.services.gpu_use import DeviceSample, device_samples_record
from apps.tasks.services.idle_rules import idle_rules_apply
from apps.usage.selectors.idle_attempts import idle_attempts, idle_gpu_by_policy
from tests.allocation.state import apply, begin, decided, end, enqueue, latest, make_node
from tests.dashboard.conftest import ClientFor, client_for
from tests.dashboard.page_reader import text
from tests.people import Example

__all__ = ["client_for"]

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
Assert = Callable[..., Any]
Patch = pytest.MonkeyPatch
ApiAs = Callable[[User], APIClient]


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.h100, name="h1")


@pytest.fixture
def task(example: Example, alice: User, node: Node) -> Task:
    """It has held four GPUs for an hour."""
    [task] = enqueue(alice, example.dev_queue)
    apply(*decided())
    begin(latest(task))
    since = timezone.now() - timedelta(hours=1)
    Attempt.objects.update(allocated_at=since, started_at=since)
    Member.objects.update(started_at=since)
    return task


def sample(node: Node, percents: list[int | None], until: datetime) -> None:
    """A sample each minute, the last one at `until`."""
    uuids = list(Device.objects.values_list("uuid", flat=True))
    for number, percent in enumerate(percents):
        at = until - (len(percents) - 1 - number) * MINUTE
        samples = [DeviceSample(uuid, 2048, percent, 100_000) for uuid in uuids]
        device_samples_record(node, samples, {}, now=at)


@pytest.fixture
def warned(task: Task, node: Node, example: Example) -> IdleWarning:
    """The task was warned, and is stopped in half an hour."""
    rule = {"idle_warn_minutes": 30, "idle_stop_minutes": 60}
    Queue.objects.filter(pk=example.dev_queue.pk).update(**rule)
    now = timezone.now()
    sample(node, [80, 80, *[2] * 31], now)
    idle_rules_apply(now=now)
    return IdleWarning.objects.get()


def test_what_was_not_used_for_a_while_is_idle(
    node: Node, task: Task, root: User, alice: User, bob: User, charlie: User
) -> None:
    now = timezone.now()
    sample(node, [80, 80, *[2] * 30], now)

    [found] = idle_attempts(root, now=now)

    assert (found.task_id, found.owner, found.gpus) == (task.pk, "alice", "4")
    assert found.since == now - 30 * MINUTE
    assert found.gpu_s == 4 * 30 * 60
    assert [one.task_id for one in idle_attempts(alice, now=now)] == [task.pk]
    assert idle_attempts(charlie, now=now) == [], "not of their queue"
    assert idle_attempts(root, after=31 * MINUTE, now=now) == []
    assert idle_attempts(root, now=now + 6 * MINUTE) == [], "what it does since then is not known"


@pytest.mark.parametrize("percents", [[2] * 30 + [5], [None] * 40, []])
def test_what_is_used_or_not_known_is_not_idle(
    percents: list[int | None], node: Node, task: Task, root: User
) -> None:
    now = timezone.now()
    sample(node, percents, now)

    assert idle_attempts(root, now=now) == []


def test_a_gpu_that_stops_saying_its_use_is_not_idle(node: Node, task: Task, root: User) -> None:
    now = timezone.now()
    sample(node, [*[2] * 20, *[None] * 5], now)

    assert idle_attempts(root, now=now) == []


def test_a_gang_with_a_node_that_is_silent_is_not_idle(
    example: Example, node: Node, task: Task, root: User
) -> None:
    now = timezone.now()
    other = make_node(example.h100, name="h2")
    first = Member.objects.get()
    member = Member.objects.create(
        attempt=first.attempt, rank=1, pool=first.pool, node=other, started_at=first.started_at
    )
    device = other.devices.first()
    assert device is not None
    HeldDevice.objects.create(member=member, device=device)
    for minute in range(20, -1, -1):
        idle = [DeviceSample(one.uuid, 1, 0, None) for one in node.devices.all()]
        device_samples_record(node, idle, {}, now=now - minute * MINUTE)

    assert idle_attempts(root, now=now) == []


def test_rest_lists_idle_tasks_and_how_each_attempt_used_its_gpus(
    node: Node, task: Task, alice: User, charlie: User, api_as: ApiAs
) -> None:
    sample(node, [80, 80, *[2] * 30], timezone.now())
    api = api_as(alice)

    [idle] = api.get("/api/v1/usage/idle/").json()
    assert (idle["name"], idle["gpus"], idle["owner"]) == (task.name, "4", "alice")
    assert idle["gpu_seconds"] == pytest.approx(4 * 30 * 60, abs=60)
    assert api_as(charlie).get("/api/v1/usage/idle/").json() == []
    wrong = api.get("/api/v1/usage/idle/?minutes=1")
    assert (wrong.status_code, list(wrong.json()["fields"])) == (400, ["minutes"])

    [attempt] = api.get(f"/api/v1/tasks/{task.pk}/attempts/").json()
    use = attempt["gpu_use"]
    assert (use["percent"], use["memory_mb"]) == (round((80 + 2 * 30) / 31), 2048)
    assert use["sampled_gpu_seconds"] == 4 * 31 * 60
    assert use["idle_since"] is not None
    steps = api.get(f"/api/v1/tasks/{task.pk}/gpu-use/").json()
    assert steps["generation"] == 1
    assert 7 <= len(steps["steps"]) <= 8
    assert steps["steps"][-1]["percent"] == 2
    assert api_as(charlie).get(f"/api/v1/tasks/{task.pk}/gpu-use/").status_code == 404


def test_the_page_of_the_task_shows_its_use_and_that_it_is_idle(
    node: Node, task: Task, alice: User, client_for: ClientFor
) -> None:
    panel = f"/tasks/{task.pk}/gpu-use/"
    assert "Unknown: nothing was reported" in text(client_for(alice).get(panel))

    sample(node, [80, 80, *[2] * 30], timezone.now())

    shown = text(client_for(alice).get(panel))
    assert "Mean 5 %" in shown
    assert "Memory, most 2.0 GiB" in shown
    assert "Below 5 % on every GPU since" in shown
    assert "Held but idle now" in text(client_for(alice).get("/usage/"))

    end(latest(task), code=0, is_stop_asked=False)
    ended = text(client_for(alice).get(panel))
    assert "Mean 5 %" in ended
    assert "Below 5 %" not in ended


def test_a_task_without_gpus_or_attempts_has_no_panel(
    example: Example, alice: User, client_for: ClientFor
) -> None:
    [waiting] = enqueue(alice, example.dev_queue)
    page = client_for(alice).get(f"/tasks/{waiting.pk}/gpu-use/")

    assert (page.status_code, text(page)) == (200, "")
    assert not AttemptUse.objects.exists()


def test_the_list_is_filtered_by_policy_queue_and_owner(
    node: Node, task: Task, example: Example, root: User, charlie: User, api_as: ApiAs
) -> None:
    sample(node, [80, 80, *[2] * 30], timezone.now())

    def found(query: str, user: User = root) -> list[str]:
        return [one["name"] for one in api_as(user).get(f"/api/v1/usage/idle/?{query}").json()]

    top = Policy.objects.create(name="Top", group=example.dev.group)
    Policy.objects.filter(pk=example.dev.pk).update(parent=top)
    for query in (
        f"policy={top.pk}",
        f"policy={example.dev.name}&queue={example.dev_queue.name}&owner=alice",
    ):
        assert found(query) == [task.name], query
    for query in ("owner=bob", f"queue={example.research_queue.name}", "minutes=45"):
        assert found(query) == [], query
    dev, queue = example.dev.name, example.dev_queue.name
    for name, given, user in (
        ("policy", dev, charlie),
        ("queue", queue, charlie),
        ("queue", "none", root),
    ):
        wrong = api_as(user).get(f"/api/v1/usage/idle/?{name}={given}")
        assert (wrong.status_code, list(wrong.json()["fields"])) == (400, [name])


def test_the_page_of_idle_tasks_filters_and_aborts(
    warned: IdleWarning,
    task: Task,
    example: Example,
    root: User,
    bob: User,
    charlie: User,
    client_for: ClientFor,
) -> None:
    client = client_for(root)
    query = f"queue={example.dev_queue.pk}&minutes=30"
    page = client.get(f"/usage/idle/?{query}")
    assert task.name in text(page)
    address = f"/tasks/{task.pk}/abort/?idle={quote(query, safe='')}"
    assert address in page.content.decode()
    assert "No idle task matches" in text(client.get("/usage/idle/?owner=bob"))
    assert "No idle task matches" in text(client.get("/usage/idle/?queue=99&minutes=x"))
    assert "Abort" not in text(client_for(bob).get("/usage/idle/")).partition(task.name)[2]
    assert task.name not in text(client_for(charlie).get("/usage/idle/"))
    assert client_for(bob).get(address).status_code == 403

    shown = client.get(address)
    assert f"Abort {task.name}?" in text(shown)
    assert shown.context["back"] == f"/usage/idle/?{query}"
    done = client.post(f"/tasks/{task.pk}/abort/", {"idle": query})
    assert (done.status_code, done.headers["Location"]) == (302, f"/usage/idle/?{query}")
    task.refresh_from_db()
    assert task.state == TaskState.STOPPING
    after = client.get(f"/usage/idle/?{query}")
    assert f"{task.name} is being stopped." in text(after)
    assert address not in after.content.decode()
    away = client.post(f"/tasks/{task.pk}/abort/", {"idle": "//evil.example/?owner=x"})
    assert away.headers["Location"].startswith("/usage/idle/?")


def test_periods_that_are_over_list_no_idle_tasks(
    warned: IdleWarning, task: Task, alice: User, client_for: ClientFor, monkeypatch: Patch
) -> None:
    asked: list[object] = []

    def count(*given: object, **_: object) -> list[object]:
        asked.append(given)
        return []

    monkeypatch.setattr("apps.dashboard.views.usage.idle_attempts", count)
    client = client_for(alice)
    client.get("/usage/?since=2026-01-01&until=2026-01-31")
    assert asked == []
    client.get("/usage/")
    assert len(asked) == 1


@pytest.mark.parametrize("by", ["policy", "queue", "profile", "pool", "owner"])
def test_lines_of_the_report_lead_to_what_they_are_for(
    by: str, task: Task, example: Example, root: User, alice: User, client_for: ClientFor
) -> None:
    where = {
        "policy": f"/policies/{example.dev.pk}/",
        "queue": f"/tasks/?view=all&amp;queue={example.dev_queue.pk}",
        "profile": f"/tasks/?view=all&amp;profile={example.dev_queue.profile_id}",
        "pool": f"/tasks/?view=all&amp;pool={example.h100.pk}",
        "owner": f"/settings/people/{alice.pk}/",
    }
    page = client_for(root).get(f"/usage/?by={by}")
    assert f'<a href="{where[by]}"' in page.content.decode()
    own = client_for(alice).get(f"/usage/?by={by}").content.decode()
    if by == "owner":
        assert '<a href="/tasks/?view=all&amp;mine=1"' in own
        assert "/settings/people/" not in own
    elif by == "pool":
        assert where[by] not in own, "she does not see pools"
    else:
        assert where[by] in own


def test_metrics_read_no_content_of_idle_tasks(
    warned: IdleWarning, example: Example, django_assert_num_queries: Assert
) -> None:
    with django_assert_num_queries(1) as asked:
        assert idle_gpu_by_policy() == {example.dev.pk: 4000}
    assert "stop_detail" not in asked.captured_queries[0]["sql"]


def test_rest_says_what_the_queue_does_to_an_idle_task_and_exempts_it(
    warned: IdleWarning, task: Task, root: User, alice: User, charlie: User, api_as: ApiAs
) -> None:
    path = f"/api/v1/tasks/{task.pk}/idle-rule/"
    stop_at = warned.stop_at.isoformat().replace("+00:00", "Z") if warned.stop_at else ""
    rule = api_as(alice).get(path).json()
    assert (rule["warn_minutes"], rule["stop_minutes"]) == (30, 60)
    assert (rule["is_exempt"], rule["stop_at"]) == (False, stop_at)
    explained = api_as(alice).get(f"/api/v1/tasks/{task.pk}/explain/").json()
    assert explained["idle_warning"]["stop_at"] == stop_at

    assert api_as(charlie).get(path).status_code == 404
    assert api_as(alice).put(path, {"is_exempt": True}, format="json").status_code == 403
    wrong = api_as(root).put(path, {"is_exempt": "x"}, format="json")
    assert (wrong.status_code, list(wrong.json()["fields"])) == (400, ["is_exempt"])
    exempt = api_as(root).put(path, {"is_exempt": True}, format="json").json()
    assert (exempt["is_exempt"], exempt["exempted_by"]) == (True, "root")
    assert exempt["stop_at"] is None
    again = api_as(root).put(path, {"is_exempt": False}, format="json").json()
    assert again["is_exempt"] is False
    assert api_as(alice).get(f"/api/v1/tasks/{task.pk}/explain/").json()["idle_warning"] is None


def test_pages_say_when_an_idle_task_is_stopped_and_managers_exempt_it(
    warned: IdleWarning, task: Task, root: User, alice: User, client_for: ClientFor
) -> None:
    panel = f"/tasks/{task.pk}/gpu-use/"
    page = text(client_for(alice).get(f"/tasks/{task.pk}/"))
    assert "and its queue stops it at" in page
    assert "Idle, stops" in text(client_for(alice).get("/tasks/"))
    shown = text(client_for(alice).get(panel))
    assert "below 5 % for 30 minutes and stops it after 60 minutes" in shown
    assert "Exempt this task" not in shown
    assert client_for(alice).post(f"/tasks/{task.pk}/idle-rule/").status_code == 403

    assert "Exempt this task" in text(client_for(root).get(panel))
    done = client_for(root).post(f"/tasks/{task.pk}/idle-rule/", {"is_exempt": "1"}, follow=True)
    assert f"{task.name} may be idle." in text(done)
    assert "and its queue stops it at" not in text(done)
    assert "It may be idle, whatever its queue says" in text(client_for(alice).get(panel))
    client_for(root).post(f"/tasks/{task.pk}/idle-rule/", {"is_exempt": "0"})
    assert "Exempt this task" in text(client_for(root).get(panel))


def test_the_curve_has_a_gap_where_nothing_is_known() -> None:
    began = timezone.now()
    percents: list[int | None] = [0, 100, None, 50, 50]
    steps = [GpuUseStep(began + 5 * n * MINUTE, percent, 0) for n, percent in enumerate(percents)]
    curve = GpuUseCurve.of(steps)

    assert curve is not None
    assert curve.path == "M0 63L100 1M300 32L400 32"
    assert GpuUseCurve.of(steps[:1]) is None
    many = GpuUseCurve.of([GpuUseStep(began + 5 * n * MINUTE, 50, 0) for n in range(4000)])
    assert many is not None
    assert many.path.count("L") < 200
    assert many.path.count("M") == 1
