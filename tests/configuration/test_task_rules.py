"""Rules on single tasks: one person or group reads one task and its log, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from apps.access.levels import Level, RuleKind
from apps.access.permissions import holders, may, permission_sources, verbs_held
from apps.access.rules.rule import RuleFilter, Target
from apps.access.rules.selectors import rule_by_key, rules_visible_to, sees_rules
from apps.accounts.models import User
from apps.accounts.selectors import people_managed_by
from apps.accounts.services.people import user_create
from apps.accounts.services.service_accounts import service_account_create
from apps.configuration.access_explanation import ObjectKind, explanation
from apps.configuration.group_usage import group_counts, group_usage
from apps.configuration.services import rules as services
from apps.configuration.services.queues import profile_connect
from apps.configuration.services.rules import RuleSubjects, rule_grant, rule_remove
from apps.core.errors import BadInput, NotAllowed, NotFound
from apps.events.models import AuditEntry
from apps.policies.models import Policy, Profile, Queue
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task, TaskGroupPermission, TaskUserPermission
from apps.tasks.selectors.delegation import delegating_owner
from apps.tasks.selectors.visibility import task_permissions, tasks_visible_to, visible_task
from apps.tasks.services.enqueue.submission import task_create, task_submit
from apps.tasks.services.queue_order import task_change_queue
from apps.tasks.services.retention import expired_remove, retention_of
from apps.tasks.services.stop import task_dequeue, tasks_return_to_draft
from apps.tasks.task_spec import TaskSpec
from tests.people import Example
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db
As = Callable[[User], APIClient]
RULES, TASKS = "/api/v1/access-rules/", "/api/v1/tasks/"


def submit(owner: User, queue: Queue, name: str = "hers") -> Task:
    return task_submit(actor=owner, spec=TaskSpec(name=name, queue=queue.name, command=["true"]))


def about(task: Task) -> Target:
    return Target(RuleKind.TASK, str(task.pk), task.name)


def share(actor: User, task: Task, *subjects: User | Group) -> None:
    named = RuleSubjects(
        tuple(one for one in subjects if isinstance(one, User)),
        tuple(one for one in subjects if isinstance(one, Group)),
    )
    rule_grant(actor=actor, target=about(task), level=Level.READ, subjects=named)


@pytest.fixture
def task(example: Example, alice: User) -> Task:
    return submit(alice, example.dev_queue)


@pytest.fixture
def second_queue(example: Example, root: User) -> Queue:
    profile = Profile.objects.get(name="2xGPU")
    return profile_connect(actor=root, policy=example.dev, profile=profile, queue_name="second")


@pytest.fixture
def pal(alice: User) -> User:
    """Of a team that alice is in, too, and that has no policy."""
    pals = Group.objects.create(name="pals")
    alice.groups.add(pals)
    return user_create(username="pal", password=None, groups=["pals"])


# --- what a rule gives -----------------------------------------------------------------------


def test_owners_let_others_read_one_task_and_its_log(task: Task, alice: User, pal: User) -> None:
    assert task.queue is not None
    other = submit(alice, task.queue, "other")
    share(alice, task, pal)

    assert list(tasks_visible_to(pal)) == [task]
    permissions = task_permissions(pal, task)
    assert (permissions.log, permissions.content, permissions.manage) == (True, False, False)
    assert not may(pal, "view", other)
    rule_remove(actor=alice, target=about(task), level=Level.READ)
    assert not tasks_visible_to(pal).exists()


def test_the_directions_agree_for_every_task(
    organisations: Organisations, root: User, quinn: User, charlie: User
) -> None:
    acme, rival = organisations.acme, organisations.rival
    tasks = [submit(acme.member, acme.queue), submit(rival.member, rival.queue)]
    tasks.append(task_create(actor=charlie, spec=TaskSpec(name="draft", command=["true"])))
    share(root, tasks[0], acme.admins, charlie)
    share(root, tasks[1], charlie)
    # Later they come to another tenant: the rule gives them nothing there.
    charlie.groups.add(acme.group)
    Policy.objects.filter(pk=acme.team.pk).update(logs_open_to_group=True)

    checked = 0
    for row in Task.objects.all():
        for verb in ("view", "queue", "log", "manage"):
            people = set(holders(row, verb).values_list("pk", flat=True))
            for user in User.objects.all():
                codes = {one.code for one in permission_sources(user, verb, row)}
                is_held = may(user, verb, row)
                why = (user.username, verb, row, codes)
                assert is_held == (user.pk in people), why
                assert is_held == (verb in verbs_held(user, row, [verb])), why
                assert is_held == (not {"nothing", "other_tenant"} & codes), why
                checked += 1
    assert checked > 50
    assert not may(charlie, "view", tasks[1])


def test_queue_and_policy_of_a_task_stay_hidden(
    task: Task, alice: User, pal: User, api_as: As, example: Example
) -> None:
    share(alice, task, pal)
    client = api_as(pal)

    shown = client.get(f"{TASKS}{task.pk}/").json()
    row = client.get(TASKS).json()["results"][0]
    for found in (shown, row):
        assert (found["queue"], found["queue_id"], found["policy_id"]) == (None, None, None)
    for query in (f"policy={example.dev.pk}", f"queue={example.dev_queue.name}"):
        answer = client.get(f"{TASKS}?{query}")
        assert answer.status_code == 400, "as for one that is not there"
    explained = client.get(f"{TASKS}{task.pk}/explain/").json()
    assert (explained["reasons"], explained["history"], explained["position"]) == ([], [], None)
    why = client.get(f"/api/v1/access/explain/?object=task.{task.pk}").json()
    assert "Dev" not in str(why)
    assert client.post(f"{TASKS}{task.pk}/abort/").status_code == 403


def test_a_rule_is_explained_and_audited(task: Task, root: User, alice: User, pal: User) -> None:
    share(alice, task, pal)

    explained = explanation(root, person=pal, thing=ObjectKind.TASK, object_id=str(task.pk))
    held = {one.permission.value: one.is_held for one in explained.answers}
    assert held == {"see": True, "content": False, "log": True, "manage": False}
    source = explained.answers[0].sources[0]
    assert (source.code, source.on, source.by) == ("rule", ("task", "hers"), "alice")
    entry = AuditEntry.objects.latest("pk")
    assert (entry.verb, entry.object_type, entry.object_id) == (
        "rule.granted",
        "task",
        str(task.pk),
    )


def test_rules_have_the_rest_of_other_rules(
    task: Task, alice: User, pal: User, api_as: As, root: User
) -> None:
    client = api_as(alice)
    body = {"kind": "task", "object": str(task.pk), "level": "read", "users": ["pal"]}

    made = client.post(RULES, body)

    assert made.status_code == 201
    key = f"task.{task.pk}.read.person"
    assert made.json()["id"] == key
    for reader in (alice, root):
        listed = api_as(reader).get(f"{RULES}?kind=task").json()["results"]
        assert [one["id"] for one in listed] == [key]
    change = {"users": [], "groups": ["pals"]}
    headers = {"If-Match": made["ETag"]}
    assert client.patch(f"{RULES}{key}/", change, headers=headers).status_code == 200
    assert may(pal, "log", task)
    assert api_as(pal).get(f"{RULES}{key}/").status_code == 404
    assert client.delete(f"{RULES}{key}/").status_code == 204
    assert not TaskGroupPermission.objects.exists()


def test_only_reading_is_given_and_only_by_owners_and_managers(
    task: Task, alice: User, bob: User, pal: User, root: User
) -> None:
    with pytest.raises(BadInput, match="a task has read"):
        rule_grant(
            actor=alice, target=about(task), level=Level.MANAGE, subjects=RuleSubjects((pal,))
        )
    # Bob sees the queue; the pal reads the task.
    share(alice, task, pal)
    for actor in (bob, pal):
        with pytest.raises(NotFound):
            share(actor, task, bob)
    draft = task_create(actor=alice, spec=TaskSpec(name="draft", command=["true"]))
    with pytest.raises(NotFound):
        share(alice, draft, pal)


def test_a_page_of_rules_ends_with_those_of_tasks(
    example: Example, alice: User, pal: User, root: User
) -> None:
    tasks = [submit(alice, example.dev_queue, f"task {number}") for number in range(3)]
    for one in tasks:
        share(alice, one, pal)

    found, after, pages = [], "", 0
    while pages == 0 or after:
        page = rules_visible_to(root, RuleFilter(), after=after, limit=2)
        found += [rule.target.object_id for rule in page.rules if rule.target.kind == "task"]
        after, pages = page.after, pages + 1

    assert found == [str(one.pk) for one in tasks]
    assert sees_rules(alice)
    assert not sees_rules(pal)
    assert rules_visible_to(pal, RuleFilter()).rules == ()


# --- when a rule ends ------------------------------------------------------------------------


def test_rules_of_managers_end_when_the_task_leaves_their_queue(
    task: Task, alice: User, bob: User, pal: User, root: User, second_queue: Queue
) -> None:
    share(alice, task, pal)
    share(root, task, Group.objects.get(name="pals"))

    task_change_queue(actor=alice, task=task, queue=second_queue.name)

    assert may(pal, "log", task)
    assert not TaskGroupPermission.objects.exists()


def test_a_draft_keeps_no_rule(
    task: Task, alice: User, pal: User, example: Example, root: User
) -> None:
    others = submit(alice, example.dev_queue, "others")
    for one in (task, others):
        share(alice, one, pal)

    task_dequeue(actor=alice, task=task)
    assert not may(pal, "view", task)
    assert may(pal, "view", others)
    tasks_return_to_draft(queue_ids=[example.dev_queue.pk], reason="closed")
    assert not TaskUserPermission.objects.exists()


def test_no_rule_comes_along_into_a_tenant(
    organisations: Organisations, alice: User, pal: User, root: User
) -> None:
    acme, example = organisations.acme, organisations.example
    subjects = RuleSubjects(users=(alice,))
    target = Target(RuleKind.QUEUE, str(acme.queue.pk))
    rule_grant(actor=root, target=target, level=Level.MODIFY, subjects=subjects)
    task = submit(alice, example.dev_queue)
    share(alice, task, pal)

    task_change_queue(actor=alice, task=task, queue=acme.queue.name)

    assert not TaskUserPermission.objects.exists()


def test_rules_are_removed_with_their_task(task: Task, alice: User, pal: User) -> None:
    share(alice, task, pal)
    Task.objects.filter(pk=task.pk).update(state=TaskState.ABORTED, ended_at=task.created_at)

    from_now = task.created_at.replace(year=task.created_at.year + 1)
    expired_remove(retention_of(logs_days=0, tasks_days=1), now=from_now)

    assert not Task.objects.filter(pk=task.pk).exists()
    assert not TaskUserPermission.objects.exists()


# --- tenants and accounts --------------------------------------------------------------------


@pytest.mark.parametrize(("of", "is_managed"), [("acme", True), ("rival", False), ("", False)])
def test_administrators_of_a_tenant_do_not_manage_who_reads_a_task_outside(
    organisations: Organisations, alice: User, of: str, is_managed: bool
) -> None:
    acme, example = organisations.acme, organisations.example
    place: Any = getattr(organisations, of) if of else None
    owner, queue = (place.admin, place.queue) if of else (alice, example.dev_queue)
    TaskUserPermission.objects.assign_perm("view_task", acme.member, submit(owner, queue))

    assert (acme.member in people_managed_by(acme.admin)) is is_managed


def test_on_a_task_of_a_tenant_only_administrators_name_people_of_none(
    organisations: Organisations, root: User, charlie: User
) -> None:
    acme, rival = organisations.acme, organisations.rival
    task = submit(acme.member, acme.queue)
    mixed = Group.objects.create(name="mixed")
    for one in (acme.member, charlie):
        one.groups.add(mixed)

    for outsider in (charlie, mixed):
        with pytest.raises(BadInput):
            share(acme.member, task, outsider)
    with pytest.raises(BadInput, match="another tenant"):
        share(root, task, rival.member)
    share(root, task, charlie)
    assert may(charlie, "log", task)


def test_an_owner_of_no_tenant_names_only_the_tenants_people_there(
    organisations: Organisations, alice: User, pal: User, root: User
) -> None:
    queue = organisations.acme.queue
    rule_grant(
        actor=root,
        target=Target(RuleKind.QUEUE, str(queue.pk)),
        level=Level.MODIFY,
        subjects=RuleSubjects(users=(alice,)),
    )

    with pytest.raises(BadInput, match="do not belong to the same tenant"):
        share(alice, submit(alice, queue), pal)


def test_an_account_that_reads_one_task_does_not_act_for_its_owner(
    task: Task, root: User, api_as: As
) -> None:
    made = service_account_create(
        actor=root, name="reader", groups=["research"], can_act_for_owners=True
    )
    share(root, task, made.account)

    assert visible_task(made.account, task.pk) == task
    with pytest.raises(NotAllowed, match="does not see its queue"):
        delegating_owner(made.account, str(task.pk))
    explained = explanation(
        root, person=made.account, thing=ObjectKind.TASK, object_id=str(task.pk)
    )
    assert [one.is_held for one in explained.answers if one.permission == "act"] == [False]


# --- costs -----------------------------------------------------------------------------------


def test_a_task_is_shared_with_as_many_as_its_bound_says(
    task: Task, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = [user_create(username=f"p{number}", password=None) for number in range(3)]
    monkeypatch.setattr(services, "MOST_ON_TASK", 2)
    share(root, task, *people[:2])

    with pytest.raises(BadInput, match="at most 2"):
        share(root, task, people[2])

    assert TaskUserPermission.objects.values("user").distinct().count() == 2


def test_a_rule_on_a_task_reloads_no_pages(
    task: Task, alice: User, pal: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_ids: list[int]) -> None:
        pytest.fail("sockets close")

    monkeypatch.setattr(services, "permissions_change_notify", fail)

    share(alice, task, pal)

    rule_remove(actor=alice, target=about(task), level=Level.READ)


def test_a_list_of_tasks_takes_no_further_statement_for_rules(
    task: Task, bob: User, django_assert_num_queries: Any
) -> None:
    reader = User.objects.get(pk=bob.pk)

    # Memberships, groups, tasks.
    with django_assert_num_queries(3):
        assert list(tasks_visible_to(reader).select_related("queue")) == [task]


def test_groups_count_rules_on_tasks_without_their_content(
    task: Task, alice: User, pal: User, root: User, django_assert_num_queries: Any
) -> None:
    pals = Group.objects.get(name="pals")
    share(alice, task, pals)

    assert group_counts([pals.pk])[pals.pk].rules == 1
    (rule,) = group_usage(pals).rules
    assert (rule.kind, rule.name, rule.permissions) == ("task", "hers", ("log", "view"))


def test_administrators_of_a_tenant_see_rules_of_its_groups_on_its_tasks(
    organisations: Organisations, root: User
) -> None:
    acme = organisations.acme
    task = submit(acme.member, acme.queue)
    share(root, task, acme.group)

    assert [one.kind for one in group_usage(acme.group, reader=acme.admin).made_by_people] == [
        "task"
    ]
    assert group_counts([acme.group.pk], reader=acme.admin)[acme.group.pk].rules == 1
    assert rule_by_key(acme.admin, f"task.{task.pk}.read.person") is not None
