"""Values of vaults in a task: at its launch, for its owner, and never in its output."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from apps.access.services.vaults import vault_change, vault_remove
from apps.accounts.models import User
from apps.accounts.services.groups import group_members_add
from apps.core.errors import BadInput
from apps.core.keyring import HIDDEN
from apps.tasks.lifecycle.states import AttemptState
from apps.tasks.models import Attempt, Task
from apps.tasks.selectors.log_needles import log_needles
from apps.tasks.selectors.vaults import launch_spec, vault_versions_in_use
from apps.tasks.services.attempts.vaults import attempt_note_vaults
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec
from apps.vaults.selectors.effective import VaultGone, vaults_applying_to
from apps.vaults.services.maintenance import vaults_remove_unused
from apps.vaults.services.vaults import vault_create
from tests.people import Example
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db

As = Callable[[User], APIClient]


def task_of(owner: User, example: Example, **values: Any) -> Task:
    fields = {"name": "t", "queue": example.dev_queue.name, "command": ["true"], **values}
    return task_submit(actor=owner, spec=TaskSpec(**fields))


def vault(actor: User, name: str, text: str, **values: Any) -> Any:
    return vault_create(actor=actor, name=name, text=text, is_active=True, **values)


def given(task: Task) -> TaskSpec:
    return launch_spec(task, vaults_applying_to(task.owner_id, tenant_id=None))


def attempt_of(task: Task, **values: Any) -> Attempt:
    queue = task.queue
    assert queue is not None
    pool = queue.profile.links.first()
    assert pool is not None
    fields = {"generation": 1, "allocated_at": task.created_at, "state": AttemptState.RUNNING}
    return Attempt.objects.create(
        task=task, queue=queue, policy=queue.policy, pool=pool.pool, **{**fields, **values}
    )


def test_the_owners_vaults_lie_below_those_of_groups_and_the_task_above_both(
    alice: User, root: User, dev_group: Group, example: Example
) -> None:
    vault(alice, "mine", "environment { A = own, B = own, C = own }, container.image = own/image")
    vault(root, "team", "environment { B = team, C = team, D = 1 }", group=dev_group)
    task = task_of(alice, example, environment={"C": "task"})

    got = given(task)

    assert got.environment == {"A": "own", "B": "team", "C": "task", "D": "1"}
    assert (got.image, got.command) == ("docker.io/own/image:latest", ["true"])
    assert got.secrets == {}


def test_what_is_enforced_wins_over_the_task_itself(
    alice: User, root: User, dev_group: Group, example: Example
) -> None:
    text = "environment { PROXY = ours, FREE = ours }, container.image = our/image"
    enforced = ["environment.PROXY", "container.image"]
    vault(root, "team", text, group=dev_group, enforced=enforced)
    vault(alice, "mine", "environment.PROXY = mine")
    own = {"PROXY": "task", "FREE": "task"}

    got = given(task_of(alice, example, image="task/image", environment=own))

    assert got.environment == {"PROXY": "ours", "FREE": "task"}
    assert got.image == "docker.io/our/image:latest"


def test_a_tasks_own_image_command_and_folder_come_before_those_of_vaults(
    alice: User, example: Example
) -> None:
    vault(alice, "mine", 'container { image = a/b, command = [run], working_dir = "/v" }')

    own = given(task_of(alice, example, image="c/d", working_dir="/t"))
    bare = given(task_of(alice, example, image="c/d", command=[]))

    assert (own.image, own.command, own.working_dir) == ("docker.io/c/d:latest", ["true"], "/t")
    assert (bare.image, bare.command, bare.working_dir) == ("docker.io/c/d:latest", ["run"], "/v")


def test_secrets_of_vaults_come_with_the_tasks_own_and_the_rest_as_a_file(
    alice: User, example: Example
) -> None:
    text = "secrets { A = vault-a, B = vault-b, C = vault-c }, lr = 0.1, model { layers = [1, 2] }"
    vault(alice, "mine", text)

    got = given(task_of(alice, example, secrets={"B": "task-b"}, environment={"C": "open"}))

    file = got.secrets.pop("RPM_VAULT")
    assert got.secrets == {"A": "vault-a", "B": "task-b"}
    assert got.environment == {"C": "open"}
    assert '"layers": [' in file
    assert "vault-a" not in file + repr(got)


def test_more_than_a_container_can_be_given_is_said(alice: User, example: Example) -> None:
    for number in range(9):
        vault(alice, f"v{number}", f"k{number} = {'x' * 60_000}")

    with pytest.raises(BadInput, match="bring a file of"):
        given(task_of(alice, example))


def test_all_members_of_an_attempt_begin_with_what_was_noted_first(
    alice: User, example: Example
) -> None:
    mine = vault(alice, "mine", "environment.A = 1")
    attempt = attempt_of(task_of(alice, example))

    first = attempt_note_vaults(attempt_id=attempt.pk)
    vault_change(actor=alice, vault=mine, changes={"text": "environment.A = 2"})
    vault(alice, "late", "environment.B = 1")
    second = attempt_note_vaults(attempt_id=attempt.pk)

    assert first == second == [(mine.pk, 1)]
    assert launch_spec(attempt.task, second).environment == {"A": "1"}
    attempt.refresh_from_db()
    assert attempt.vaults == [[str(mine.pk), 1]]


def test_an_attempt_that_began_without_vaults_stays_so(alice: User, example: Example) -> None:
    attempt = attempt_of(task_of(alice, example))
    attempt_note_vaults(attempt_id=attempt.pk)
    vault(alice, "late", "environment.B = 1")

    assert attempt_note_vaults(attempt_id=attempt.pk) == []


def test_a_vault_that_is_removed_stays_for_what_began_with_it(
    alice: User, example: Example
) -> None:
    mine = vault(alice, "mine", "secrets.A = long-secret")
    attempt = attempt_of(task_of(alice, example))
    used = attempt_note_vaults(attempt_id=attempt.pk)
    vault_remove(actor=alice, vault=mine)

    vaults_remove_unused(vault_versions_in_use())
    assert launch_spec(attempt.task, used).secrets == {"A": "long-secret"}

    Attempt.objects.update(state=AttemptState.STOPPING)
    Attempt.objects.update(state=AttemptState.FINISHED, ended_at=attempt.allocated_at)
    Attempt.objects.update(ended_at="2020-01-01T00:00:00Z")
    vaults_remove_unused(vault_versions_in_use())
    with pytest.raises(VaultGone):
        launch_spec(attempt.task, used)


def test_secrets_of_vaults_are_masked_in_logs(alice: User, example: Example) -> None:
    vault(alice, "mine", "secrets.A = long-secret, environment { MY_TOKEN = tok-4711, B = plain }")
    attempt = attempt_of(task_of(alice, example))
    attempt_note_vaults(attempt_id=attempt.pk)

    attempt.refresh_from_db()
    assert set(log_needles(attempt)) == {b"long-secret", b"tok-4711"}


def test_the_owner_sees_where_each_value_came_from(
    api_as: As, alice: User, root: User, dev_group: Group, example: Example
) -> None:
    mine = vault(alice, "mine", "environment { A = 1, MY_TOKEN = t }, secrets.S = long-secret")
    team = vault(root, "team", "environment.P = x, lr = 0.1", group=dev_group, enforced=["lr"])
    task = task_of(alice, example, environment={"A": "task"})
    path = f"/api/v1/tasks/{task.pk}/effective-vault/"

    payload = api_as(alice).get(path).json()

    rows = {row["path"]: row for row in payload["values"]}
    assert payload["generation"] is None
    assert {one["name"]: one["kind"] for one in payload["vaults"]} == {
        "mine": "personal",
        "team": "group",
    }
    assert {name: row["value"] for name, row in rows.items()} == {
        "environment.A": 1,
        "environment.MY_TOKEN": HIDDEN,
        "environment.P": "x",
        "lr": 0.1,
        "secrets.S": HIDDEN,
    }
    assert rows["environment.A"]["vault"] == {"id": str(mine.pk), "name": "mine"}
    assert rows["lr"]["vault"]["id"] == str(team.pk)
    assert [name for name, row in rows.items() if not row["is_used"]] == ["environment.A"]
    assert [name for name, row in rows.items() if row["is_enforced"]] == ["lr"]


def test_administrators_see_paths_but_no_values_of_somebodys_own_vault(
    api_as: As, alice: User, root: User, example: Example
) -> None:
    vault(alice, "mine", "environment.A = private-value")
    task = task_of(alice, example)

    answer = api_as(root).get(f"/api/v1/tasks/{task.pk}/effective-vault/")

    assert [row["path"] for row in answer.json()["values"]] == ["environment.A"]
    assert b"private-value" not in answer.content


def test_others_learn_nothing_of_it(
    api_as: As, alice: User, bob: User, charlie: User, example: Example
) -> None:
    vault(alice, "mine", "environment.A = 1")
    task = task_of(alice, example)

    for user in (bob, charlie):
        answer = api_as(user).get(f"/api/v1/tasks/{task.pk}/effective-vault/")
        assert answer.status_code == 404


def test_an_attempt_is_answered_as_it_began(api_as: As, alice: User, example: Example) -> None:
    mine = vault(alice, "mine", "environment.A = then")
    attempt = attempt_of(task_of(alice, example))
    attempt_note_vaults(attempt_id=attempt.pk)
    vault_change(actor=alice, vault=mine, changes={"text": "environment.A = now"})
    client, path = api_as(alice), f"/api/v1/tasks/{attempt.task_id}/effective-vault/"

    assert [row["value"] for row in client.get(path).json()["values"]] == ["now"]
    then = client.get(path, {"generation": 1}).json()
    assert (then["generation"], [row["value"] for row in then["values"]]) == (1, ["then"])
    assert client.get(path, {"generation": 2}).status_code == 404
    assert client.get(path, {"generation": "x"}).status_code == 400


def test_vaults_of_a_tenants_groups_reach_tasks_in_its_queues_alone(
    api_as: As, root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    group_members_add(actor=root, group=acme.group, users=[root])
    text = "container { image = evil/image, command = [evil] }"
    vault(root, "everywhere", "environment.A = 1", group=Group.objects.get(name="Users"))
    vault(acme.admin, "acme", text, group=acme.group, enforced=["container"])
    theirs, own = (
        task_of(root, organisations.example, queue=queue.name, image="own/image")
        for queue in (acme.queue, organisations.rival.queue)
    )

    noted = {task.pk: attempt_note_vaults(attempt_id=attempt_of(task).pk) for task in (theirs, own)}
    shown = api_as(root).get(f"/api/v1/tasks/{own.pk}/effective-vault/").json()

    assert launch_spec(own, noted[own.pk]).image == "docker.io/own/image:latest"
    assert launch_spec(own, noted[own.pk]).environment == {"A": "1"}
    assert "evil" not in str(shown)
    assert launch_spec(theirs, noted[theirs.pk]).image == "docker.io/evil/image:latest"


def test_before_an_attempt_the_queue_says_which_vaults_a_task_would_get(
    api_as: As, organisations: Organisations
) -> None:
    acme = organisations.acme
    vault(acme.admin, "acme", "environment.A = 1", group=acme.group)
    ours = task_of(acme.member, organisations.example, queue=acme.queue.name)
    at = {"created_at": ours.created_at, "changed_at": ours.changed_at}
    draft = Task.objects.create(owner=acme.member, name="draft", **at)

    shown = [
        api_as(acme.member).get(f"/api/v1/tasks/{task.pk}/effective-vault/").json()["values"]
        for task in (ours, draft)
    ]

    assert [len(rows) for rows in shown] == [1, 0]
