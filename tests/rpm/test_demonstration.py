"""The demonstration is the worked example, and leaves nothing behind when it goes."""

import time
from collections.abc import Callable, Iterator

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import ADMINS, User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.people import user_create
from apps.allocation.services import run_pass
from apps.events.models import Event
from apps.execution.node_server.server import NodeServer
from apps.nodes.models import Node
from apps.policies.models import Policy, Pool, Profile, Queue
from apps.tasks.models import Member, Task
from rpm import demonstration
from tests.services.sshd import helpers_of, kill_helpers
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db(transaction=True)

LOOK_FOR_S = 60.0


@pytest.fixture
def logins(settings: Settings) -> Iterator[list[demonstration.DemonstrationLogin]]:
    settings.SYNC_TICK_S = 1
    yield demonstration.load()
    for home in Node.objects.values_list("helper_home", flat=True):
        kill_helpers(home)


def test_four_tasks_run_four_wait_and_removing_it_leaves_nothing(
    logins: list[demonstration.DemonstrationLogin],
) -> None:
    server = NodeServer()
    server.start()
    run_pass()
    server.wake()
    _until(lambda: Task.objects.filter(state="running").count() == 4)
    by_pool = {
        pool: set(
            Task.objects.filter(state="running", attempts__pool__name=pool).values_list(
                "queue__policy__name", flat=True
            )
        )
        for pool in (demonstration.BARE_METAL, demonstration.H100)
    }
    assert by_pool == {demonstration.BARE_METAL: {"Dev"}, demonstration.H100: {"Research"}}
    assert set(
        Task.objects.filter(state="queued").values_list("task_group__reason_code", flat=True)
    ) == {"capacity"}
    homes = list(Node.objects.values_list("helper_home", flat=True))
    server.stop()

    staying = demonstration.remove()

    assert not Member.objects.filter(released_at__isnull=True).exists()
    assert set(Task.objects.values_list("state", flat=True)) == {"aborted"}
    for model in (Node, Policy, Pool, Profile, Queue):
        assert not model._default_manager.filter(removed_at__isnull=True).exists()
    assert staying == ["demo-admin"]
    assert list(User.objects.filter(is_active=True).values_list("username", flat=True)) == staying
    _until(lambda: not any(helpers_of(home) for home in homes))


def test_its_work_goes_on_while_it_is_loaded_and_never_piles_up(
    logins: list[demonstration.DemonstrationLogin],
) -> None:
    assert demonstration.tasks_replenish() == 0
    ended = Task.objects.values_list("pk", flat=True)[:6]
    Task.objects.filter(pk__in=list(ended)).update(state="aborted")

    assert demonstration.tasks_replenish() == 8
    assert demonstration.tasks_replenish() == 0
    alive = Task.objects.filter(state="queued")
    assert alive.count() == 10
    longest = max(int(task.spec.command[-1]) for task in alive)
    assert longest == 90 * demonstration.LATER_FACTOR

    demonstration.remove()
    assert demonstration.tasks_replenish() == 0


def test_every_login_works_and_a_removed_demonstration_can_be_loaded_again(
    logins: list[demonstration.DemonstrationLogin],
) -> None:
    demonstration.remove()
    again = demonstration.load()

    assert [login.username for login in again] == [login.username for login in logins]
    assert [Client().login(username=one.username, password=one.password) for one in again] == [
        True
    ] * 3


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
    assert Event.objects.filter(kind="person.deactivated").count() == 3


def _until(look: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not look():
        assert time.monotonic() - began < scale_timeout(LOOK_FOR_S)
        time.sleep(0.1)
