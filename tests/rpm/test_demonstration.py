"""The demonstration lives while it is loaded, and leaves nothing behind when it goes."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import ADMINS, User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.people import user_create
from apps.allocation.services import run_pass
from apps.configuration.services.policies import policy_create, policy_remove
from apps.configuration.services.queues import profile_connect
from apps.core.errors import Conflict
from apps.events.models import Event
from apps.execution.node_server.server import NodeServer
from apps.nodes.models import Node
from apps.policies.models import Policy, Pool, Profile, Queue
from apps.tasks.models import Attempt, AttemptUse, Member, Task
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec
from apps.usage.models import OwnerDay, PolicyDay, PolicyHour, QueueDay, Rate, ReservedSince
from apps.usage.selectors.current_usage import amounts_of, live_attempts, over_quota_tasks
from rpm import demonstration
from rpm.demonstration import live_tasks
from rpm.demonstration.catalog import TEAMS, USERNAMES
from rpm.demonstration.demand import MOST_ALIVE
from tests.services.sshd import helpers_of, kill_helpers
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db(transaction=True)

LOOK_FOR_S = 60.0
SUMS = (PolicyHour, PolicyDay, QueueDay, OwnerDay, ReservedSince)
WAITS_OR_HOLDS = ("queued", "allocated", "running", "stopping")


@pytest.fixture
def logins(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[demonstration.DemonstrationLogin]]:
    settings.SYNC_TICK_S = 1
    # A day less to load, in each test; the whole of it is loaded in `test_demonstration_history`.
    monkeypatch.setattr("rpm.demonstration.history.DAYS", 3)
    yield demonstration.load()
    for home in Node.objects.values_list("helper_home", flat=True):
        kill_helpers(home)


def test_tasks_run_wait_and_are_over_quota_at_once_and_removing_it_leaves_nothing(
    logins: list[demonstration.DemonstrationLogin],
) -> None:
    assert Task.objects.filter(state="completed").count() > 20
    assert PolicyDay.objects.filter(cost__gt=0).exists()
    assert ReservedSince.objects.values("policy").distinct().count() == len(TEAMS)
    server = NodeServer()
    server.start()
    run_pass()
    server.wake()
    running = Attempt.objects.filter(state="running")
    _until(lambda: running.filter(task__name__startswith="notebook").exists())
    _until(lambda: running.count() >= 3)
    assert over_quota_tasks(live_attempts(), amounts_of())
    assert Task.objects.filter(state="queued").exists()
    demonstration.samples_record(now=timezone.now() + timedelta(seconds=20))
    idle = AttemptUse.objects.filter(used_at=None, known_ms__gt=0, attempt__state="running")
    assert {one.attempt.task.name[:8] for one in idle} == {"notebook"}
    homes = list(Node.objects.values_list("helper_home", flat=True))
    server.stop()

    staying = demonstration.remove()

    assert [model._default_manager.count() for model in (Task, Attempt, Member, *SUMS)] == [0] * 8
    for noun in (Node, Policy, Pool, Profile, Queue):
        assert not noun._default_manager.filter(removed_at__isnull=True).exists()
    assert not Rate.objects.exists()
    assert staying == ["demo-admin"]
    assert list(User.objects.filter(is_active=True).values_list("username", flat=True)) == staying
    assert not demonstration.is_present()
    _until(lambda: not any(helpers_of(home) for home in homes))


def test_its_work_goes_on_while_it_is_loaded_and_never_piles_up(
    logins: list[demonstration.DemonstrationLogin],
) -> None:
    first = _alive()
    for _ in range(10):
        demonstration.tasks_replenish()
    assert _alive() <= MOST_ALIVE
    assert demonstration.tasks_replenish() == 0

    demonstration.pause()
    Task.objects.filter(state__in=WAITS_OR_HOLDS).update(state="aborted")
    assert demonstration.tasks_replenish() == 0
    demonstration.resume()
    assert demonstration.tasks_replenish() > 0
    assert first > 3

    demonstration.remove()
    assert demonstration.tasks_replenish() == 0


def test_an_installation_without_it_gets_no_tasks_even_with_the_same_names() -> None:
    for name in USERNAMES:
        user_create(username=name, password=None)

    assert demonstration.tasks_replenish() == 0
    assert not Task.objects.exists()


def test_it_goes_on_quietly_where_an_administrator_removed_a_team(
    logins: list[demonstration.DemonstrationLogin],
) -> None:
    Task.objects.filter(state__in=WAITS_OR_HOLDS).update(state="aborted")
    policy_remove(actor=None, policy=Policy.objects.get(name="Dev"))

    demonstration.tasks_replenish()

    assert set(
        Task.objects.filter(state="queued").values_list("queue__policy__name", flat=True)
    ) == {"Research"}


def test_its_old_tasks_go_and_those_of_others_stay(
    logins: list[demonstration.DemonstrationLogin], monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = Task.objects.order_by("pk").first()
    assert oldest is not None
    sums = PolicyDay.objects.count()
    monkeypatch.setattr(live_tasks, "DAYS", -1)

    live_tasks.tasks_replenish()

    assert not Task.objects.filter(pk=oldest.pk).exists()
    assert Task.objects.filter(state="queued").exists()
    assert PolicyDay.objects.count() == sums


def test_what_others_did_in_its_teams_stays_with_its_usage(
    logins: list[demonstration.DemonstrationLogin],
) -> None:
    other = user_create(username="other", password=None, groups=["demo-dev"])
    row = Attempt.objects.filter(policy__name="Dev", is_preempted=False).first()
    assert row is not None
    Task.objects.filter(pk=row.task_id).update(owner=other)
    waiting = task_submit(
        actor=other, spec=TaskSpec(name="mine", queue="dev-4xgpu", command=["true"])
    )

    demonstration.remove()

    assert set(Task.objects.values_list("pk", flat=True)) == {row.task_id, waiting.pk}
    waiting.refresh_from_db()
    assert waiting.state == "draft"
    assert row.ended_at is not None
    held = row.request["gpu"] * round((row.ended_at - row.allocated_at).total_seconds() * 1000)
    assert sum(OwnerDay.objects.values_list("held", flat=True)) == held
    assert sum(PolicyDay.objects.values_list("held", flat=True)) == held


def test_it_stays_whole_while_others_depend_on_it(
    logins: list[demonstration.DemonstrationLogin],
) -> None:
    group = Group.objects.create(name="others")
    policy = policy_create(actor=None, name="Others", group=group, reserved=0, limit=2)
    profile_connect(actor=None, policy=policy, profile=Profile.objects.get(name="2xGPU"))

    with pytest.raises(Conflict, match="queue others-2xgpu has its profile 2xGPU"):
        demonstration.remove()

    assert demonstration.is_present()
    policy_remove(actor=None, policy=policy)
    demonstration.remove()
    assert not demonstration.is_present()


def test_every_login_works_and_a_removed_demonstration_can_be_loaded_again(
    logins: list[demonstration.DemonstrationLogin],
) -> None:
    demonstration.remove()
    again = demonstration.load()

    assert [login.username for login in again] == [login.username for login in logins]
    assert [Client().login(username=one.username, password=one.password) for one in again] == [
        True
    ] * 3
    assert not User.objects.get(username="demo-lena").has_usable_password()


def test_its_people_leave_as_all_others_do(logins: list[demonstration.DemonstrationLogin]) -> None:
    user_create(username="root", password=None, groups=[ADMINS])
    admin = User.objects.get(username="demo-admin")
    credential_create(user=admin, label="a program")
    nonce = admin.session_nonce

    staying = demonstration.remove()

    admin.refresh_from_db()
    assert staying == []
    assert not admin.is_active
    assert admin.session_nonce != nonce
    assert not admin.credentials.filter(revoked_at__isnull=True).exists()
    assert Event.objects.filter(kind="person.deactivated").count() == len(USERNAMES)


def _alive() -> int:
    return Task.objects.filter(state__in=WAITS_OR_HOLDS).count()


def _until(look: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not look():
        assert time.monotonic() - began < scale_timeout(LOOK_FOR_S)
        time.sleep(0.1)


def test_a_queue_that_others_made_in_its_teams_keeps_it(
    logins: list[demonstration.DemonstrationLogin],
) -> None:
    profile = Profile.objects.create(name="own", request={"gpu": "1"})
    dev = Policy.objects.get(name="Dev", removed_at__isnull=True)
    queue = Queue.objects.create(name="own-queue", policy=dev, profile=profile, queuing_rank=99)

    with pytest.raises(Conflict, match="queue own-queue is of its policy Dev"):
        demonstration.remove()

    queue.refresh_from_db()
    assert queue.removed_at is None


def test_policies_and_nodes_of_others_are_not_its_own() -> None:
    user_create(username="root", password=None, groups=[ADMINS])
    pool = Pool.objects.create(name="prod", capacity={"gpu": "8"})
    group = Group.objects.create(name="real-dev")
    dev = policy_create(actor=None, name="Dev", group=group, reserved={"gpu": 2})
    Node.objects.create(name="n", pool=pool, is_simulated=True, labels={"demonstration": "no"})

    assert not demonstration.is_present()
    demonstration.remove()

    dev.refresh_from_db()
    assert dev.removed_at is None
    assert Node.objects.get().removed_at is None


def test_it_takes_over_no_user_of_the_same_name() -> None:
    user_create(username="demo-dev", password="correct horse battery", groups=[ADMINS])

    with pytest.raises(Conflict, match="The user demo-dev was made by no demonstration"):
        demonstration.load()

    assert not demonstration.is_present()
