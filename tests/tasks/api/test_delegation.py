"""Service accounts that act for the owner of a task: with the owner's permissions, no more."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from apps.accounts.models import ADMINS, User
from apps.accounts.selectors import group_ids, is_admin, is_queue_admin
from apps.accounts.services.groups import user_groups_set
from apps.accounts.services.service_accounts import service_account_create
from apps.configuration.access_explanation import ObjectKind, PermissionName, explanation
from apps.core.errors import NotAllowed
from apps.events.models import AuditEntry, Event
from apps.policies.models import PolicyGroupPermission
from apps.tasks.models import Task
from apps.tasks.selectors.delegation import delegating_owner
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec
from apps.vaults.selectors.effective import vaults_applying_to
from apps.vaults.services.vaults import vault_create
from tests.accounts.test_throttling import basic
from tests.people import Example
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db

As = Callable[[User], APIClient]
TASKS = "/api/v1/tasks/"


@pytest.fixture
def robot(root: User, example: Example) -> User:
    """It sees the tasks of Dev's queue, and may act for their owners."""
    made = service_account_create(actor=root, name="robot", groups=["dev"], can_act_for_owners=True)
    User.objects.filter(pk=made.account.pk).update(first_name=made.secret)
    return made.account


@pytest.fixture
def program(robot: User) -> APIClient:
    credential = robot.credentials.get()
    secret = User.objects.get(pk=robot.pk).first_name
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=basic(credential.key, secret)["Authorization"])
    return client


def test_no_account_of_a_tenant_acts_for_somebody_of_another(
    root: User, organisations: Organisations
) -> None:
    acme, rival = organisations.acme, organisations.rival
    made = service_account_create(
        actor=root, name="acme-robot", groups=[acme.group.name], can_act_for_owners=True
    )
    spec = TaskSpec(name="t", queue=acme.queue.name, command=["true"])
    task = task_submit(actor=acme.member, spec=spec)
    assert delegating_owner(made.account, str(task.pk)) == acme.member

    user_groups_set(actor=root, user=acme.member, groups=[rival.group])

    with pytest.raises(NotAllowed):
        delegating_owner(User.objects.get(pk=made.account.pk), str(task.pk))
    why = explanation(root, person=made.account, thing=ObjectKind.TASK, object_id=str(task.pk))
    (act,) = (one for one in why.answers if one.permission is PermissionName.ACT)
    assert not act.is_held


def wanted(example: Example, **changes: Any) -> dict[str, Any]:
    return {"name": "train", "queue": example.dev_queue.name, "command": ["true"], **changes}


def task_of(owner: User, example: Example, api_as: As, **changes: Any) -> str:
    answer = api_as(owner).post(TASKS, wanted(example, **changes))
    assert answer.status_code == 201, answer.content
    identifier: str = answer.json()["id"]
    return identifier


def acting(task: str) -> dict[str, str]:
    return {"X-RPM-Act-For": task}


def test_what_it_enqueues_belongs_to_the_owner_and_both_are_named(
    program: APIClient, robot: User, alice: User, example: Example, api_as: As
) -> None:
    task = task_of(alice, example, api_as)

    answer = program.post(TASKS, wanted(example, name="child"), headers=acting(task))

    assert answer.status_code == 201, answer.content
    child = Task.objects.get(name="child")
    assert child.owner == alice
    event = Event.objects.get(kind="task.queued", object_id=str(child.pk))
    assert (event.actor_id, event.acted_by_id) == (alice.pk, robot.pk)
    entry = AuditEntry.objects.get(object_id=str(child.pk))
    assert (entry.actor, entry.acted_by) == ("alice", "robot")
    # Without the header it is itself again.
    assert program.post(TASKS, wanted(example, name="own")).json()["owner"] == "robot"


def test_it_sees_what_the_owner_sees(
    program: APIClient, alice: User, charlie: User, example: Example, api_as: As
) -> None:
    task = task_of(alice, example, api_as)
    draft = api_as(alice).post(TASKS, {"name": "private"}).json()["id"]
    theirs = task_of(charlie, example, api_as, queue=example.research_queue.name)

    assert program.get(f"{TASKS}{draft}/").status_code == 404
    assert program.get(f"{TASKS}{draft}/", headers=acting(task)).status_code == 200
    assert program.get(f"{TASKS}{theirs}/", headers=acting(task)).status_code == 404


def test_an_administrators_task_makes_no_administrator(
    program: APIClient, root: User, charlie: User, example: Example, api_as: As
) -> None:
    task = task_of(root, example, api_as)
    theirs = task_of(charlie, example, api_as, queue=example.research_queue.name)

    assert api_as(root).get(f"{TASKS}{theirs}/").status_code == 200
    assert program.get(f"{TASKS}{theirs}/", headers=acting(task)).status_code == 404
    assert program.get("/api/v1/service-accounts/", headers=acting(task)).status_code == 403
    assert program.get("/api/v1/nodes/", headers=acting(task)).status_code == 403
    assert program.post(TASKS, wanted(example), headers=acting(task)).status_code == 404


@pytest.mark.parametrize("group", ["Admins", "Queue admins"])
def test_nor_does_what_was_given_to_the_groups_that_administer(
    robot: User, bob: User, example: Example, api_as: As, group: str
) -> None:
    """A queue administrator's and an administrator's groups count as if they were not in them."""
    task = task_of(bob, example, api_as)
    bob.groups.add(Group.objects.get(name=group))
    granted = PolicyGroupPermission.objects.filter(permission__codename="view_policy").first()
    assert granted is not None
    owner = delegating_owner(robot, task)

    assert (is_admin(owner), is_queue_admin(owner)) == (False, False)
    assert Group.objects.get(name=group).pk not in group_ids(owner)
    assert is_queue_admin(User.objects.get(pk=bob.pk))


def test_nothing_is_made_that_outlives_the_task(
    program: APIClient, robot: User, alice: User, example: Example, api_as: As
) -> None:
    robot.credentials.update(scope="administer")
    headers = acting(task_of(alice, example, api_as))

    for method, address, body in [
        ("post", "/api/v1/credentials/", {"label": "mine now"}),
        ("post", "/api/v1/token/", {}),
        ("patch", "/api/v1/preferences/", {"redacted_variables": []}),
    ]:
        answer = getattr(program, method)(address, body, headers=headers)
        assert answer.status_code == 403, (address, answer.content)
    assert alice.credentials.count() == 0


@pytest.mark.parametrize(
    "address", ["vaults", "credentials", "account", "preferences", "access/explain", "groups"]
)
def test_what_is_the_owners_alone_is_not_read(
    program: APIClient, alice: User, example: Example, api_as: As, address: str
) -> None:
    headers = acting(task_of(alice, example, api_as))

    answer = program.get(f"/api/v1/{address}/", headers=headers)

    assert answer.status_code == 403, answer.content
    assert "X-RPM-Act-For" in answer.json()["fields"]


def test_others_in_the_team_are_left_alone_whatever_the_owner_manages(
    program: APIClient, root: User, alice: User, bob: User, example: Example, api_as: As
) -> None:
    task, other = task_of(alice, example, api_as), task_of(bob, example, api_as)

    refused = program.post(f"{TASKS}{other}/abort/", headers=acting(task))

    assert (refused.status_code, refused.json()["code"]) == (403, "scope")
    assert program.post(f"{TASKS}{task}/abort/", headers=acting(task)).status_code == 200


@pytest.mark.parametrize("state", ["draft", "completed", "failed", "aborted"])
def test_a_task_that_has_ended_delegates_nothing(
    robot: User, program: APIClient, alice: User, example: Example, api_as: As, state: str
) -> None:
    task = task_of(alice, example, api_as)
    if state in {"completed", "failed"}:
        Task.objects.filter(pk=task).update(state="allocated")
    Task.objects.filter(pk=task).update(state=state)

    answer = program.get(TASKS, headers=acting(task))

    assert answer.status_code in {404, 409}, answer.content


def test_it_acts_only_for_tasks_that_it_sees(
    program: APIClient, charlie: User, example: Example, api_as: As
) -> None:
    theirs = task_of(charlie, example, api_as, queue=example.research_queue.name)

    for task in (
        theirs,
        "00000000-0000-7000-8000-000000000000",
        "nonsense",
        "",
        f"{theirs},{theirs}",
    ):
        assert program.get(TASKS, headers=acting(task)).status_code == 404, task


def test_there_are_no_chains(program: APIClient, robot: User, root: User, example: Example) -> None:
    own = program.post(TASKS, wanted(example)).json()["id"]
    other = service_account_create(actor=root, name="other", groups=["dev"])
    client = APIClient()
    header = basic(other.credential.key, other.secret)["Authorization"]
    client.credentials(HTTP_AUTHORIZATION=header)
    theirs = client.post(TASKS, wanted(example)).json()["id"]

    assert program.get(TASKS, headers=acting(own)).status_code == 403
    assert program.get(TASKS, headers=acting(theirs)).status_code == 403
    # Nor does an account act that was not allowed to.
    assert client.get(TASKS, headers=acting(own)).status_code == 403


def test_nobody_acts_for_somebody_who_was_shut_out(
    program: APIClient, alice: User, example: Example, api_as: As
) -> None:
    task = task_of(alice, example, api_as)
    User.objects.filter(pk=alice.pk).update(is_active=False)

    assert program.get(TASKS, headers=acting(task)).status_code == 403


def test_a_person_acts_for_nobody(alice: User, bob: User, example: Example, api_as: As) -> None:
    task = task_of(alice, example, api_as)
    bob.groups.add(Group.objects.get(name=ADMINS))

    answer = api_as(bob).get(TASKS, headers=acting(task))

    assert answer.status_code == 403
    assert "X-RPM-Act-For" in answer.json()["fields"]


def test_a_token_of_the_account_acts_too(
    program: APIClient, alice: User, example: Example, api_as: As
) -> None:
    task = task_of(alice, example, api_as)
    token = program.post("/api/v1/token/", {"scope": "read"}).json()["token"]
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")

    assert client.get(TASKS, headers=acting(task)).status_code == 200
    refused = client.post(TASKS, wanted(example), headers=acting(task))
    assert refused.json()["code"] == "scope"


def test_what_it_describes_gets_nothing_of_the_owners_personal_vaults(
    program: APIClient, root: User, alice: User, dev_group: Group, example: Example, api_as: As
) -> None:
    personal = vault_create(actor=alice, name="mine", text="secrets.TOKEN = geheim", is_active=True)
    shared = vault_create(
        actor=root, name="team", text="environment.A = 1", is_active=True, group=dev_group
    )
    task = task_of(alice, example, api_as)
    draft = api_as(alice).post(TASKS, {"name": "draft"}).json()["id"]

    program.post(TASKS, wanted(example, name="child"), headers=acting(task))
    program.post(TASKS, {"name": "its draft"}, headers=acting(task))
    change(program, draft, headers=acting(task))

    for name in ("child", "its draft", "draft"):
        written = Task.objects.get(name=name)
        assert applying(written) == {shared.pk}, name
    assert applying(Task.objects.get(pk=task)) == {shared.pk, personal.pk}


def test_it_does_not_change_what_runs_with_the_owners_secrets(
    program: APIClient, alice: User, example: Example, api_as: As
) -> None:
    task = task_of(alice, example, api_as)
    body = {"name": "draft", "secrets": {"KEY": "geheim"}}
    draft = api_as(alice).post(TASKS, body).json()["id"]

    answer = change(program, draft, headers=acting(task))

    assert answer.status_code == 403, answer.content
    assert Task.objects.get(pk=draft).spec.command == []
    assert change(api_as(alice), draft).status_code == 200


def change(client: APIClient, draft: str, headers: dict[str, str] | None = None) -> Any:
    return client.patch(f"{TASKS}{draft}/", {"command": ["env"]}, format="json", headers=headers)


def applying(task: Task) -> set[Any]:
    """The vaults that reach the task now."""
    used = vaults_applying_to(task.owner_id, tenant_id=None, is_by_owner=task.is_by_owner)
    return {pk for pk, _ in used}
