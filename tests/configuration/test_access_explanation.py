"""What is explained of a person and an object: each permission, with every source of it."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.access.rules.sentences import source_sentence
from apps.accounts.models import QUEUE_ADMINS, User
from apps.accounts.services.people_changes import person_deactivate
from apps.accounts.services.service_accounts import service_account_create
from apps.configuration.access_explanation import ObjectKind, PermissionName, explanation
from apps.configuration.services.restrictions import policy_restrict
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.configuration.services.tenants import tenant_create
from apps.core.errors import NotFound
from apps.nodes.models import Node
from apps.tasks.models import Task
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec
from apps.vaults.models import Vault
from apps.vaults.services.vaults import vault_create
from tests.people import Example
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db
Answers = dict[str, tuple[bool, list[str]]]
Tell = Callable[[User, ObjectKind, object], Answers]


@pytest.fixture
def tell(root: User) -> Tell:
    """Permissions by name, each with the codes of its reasons, as an administrator sees them."""

    def do(person: User, thing: ObjectKind, row: object) -> Answers:
        fresh = User.objects.get(pk=person.pk)
        pk = str(getattr(row, "pk"))  # noqa: B009  # of any model
        explained = explanation(root, person=fresh, thing=thing, object_id=pk)
        for answer in explained.answers:
            assert answer.is_held == bool(answer.sources), answer
            assert all(source_sentence(one) for one in answer.reasons)
        return {
            answer.permission.value: (answer.is_held, [one.code for one in answer.reasons])
            for answer in explained.answers
        }

    return do


@pytest.fixture
def task(example: Example, alice: User) -> Task:
    described = TaskSpec(name="hers", queue=example.dev_queue.name, command=["true"])
    made = task_submit(actor=alice, spec=described)
    return Task.objects.get(pk=made.pk)


def test_a_task_is_its_owners_its_queues_and_its_policys(
    example: Example, task: Task, root: User, alice: User, bob: User, charlie: User, tell: Tell
) -> None:
    example.dev.logs_open_to_group = True
    example.dev.save()

    assert tell(alice, ObjectKind.TASK, task)["manage"] == (True, ["owner"])
    assert tell(bob, ObjectKind.TASK, task) == {
        "see": (True, ["policy_group"]),
        "content": (False, ["nothing"]),
        "log": (True, ["open_logs"]),
        "manage": (False, ["nothing"]),
    }
    assert {held for held, _ in tell(charlie, ObjectKind.TASK, task).values()} == {False}
    assert tell(root, ObjectKind.TASK, task)["content"] == (True, ["administrator"])
    target = Target(RuleKind.QUEUE, str(example.dev_queue.pk))
    rule_grant(
        actor=root, target=target, level=Level.MANAGE, subjects=RuleSubjects(users=(charlie,))
    )
    assert tell(charlie, ObjectKind.TASK, task)["content"] == (True, ["rule"])


def test_a_service_account_acts_for_owners_where_it_may(
    example: Example, task: Task, root: User, tell: Tell
) -> None:
    plain = service_account_create(actor=root, name="plain", groups=["dev"]).account
    robot = service_account_create(
        actor=root, name="robot", groups=["dev"], can_act_for_owners=True
    ).account

    assert tell(plain, ObjectKind.TASK, task)["act"] == (False, ["may_not_act"])
    assert tell(robot, ObjectKind.TASK, task)["act"] == (True, ["acts"])
    Task.objects.filter(pk=task.pk).update(state="aborted")
    assert tell(robot, ObjectKind.TASK, task)["act"] == (False, ["cannot_act_now"])


def test_a_restricted_policy_explains_the_denial(
    example: Example, root: User, alice: User, bob: User, tell: Tell
) -> None:
    policy_restrict(actor=root, policy=example.dev, people=[alice])

    assert tell(alice, ObjectKind.QUEUE, example.dev_queue)["enqueue"] == (True, ["policy_member"])
    assert tell(bob, ObjectKind.QUEUE, example.dev_queue)["enqueue"] == (
        False,
        ["policy_restricted"],
    )


def test_nodes_are_for_administrators(root: User, alice: User, tell: Tell) -> None:
    node = Node.objects.create(name="gpu-1")

    assert tell(root, ObjectKind.NODE, node) == {
        "see": (True, ["administrator"]),
        "manage": (True, ["administrator"]),
    }
    nothing = (False, ["only_administrators"])
    assert tell(alice, ObjectKind.NODE, node) == {"see": nothing, "manage": nothing}
    with pytest.raises(NotFound):
        explanation(alice, person=alice, thing=ObjectKind.NODE, object_id=str(node.pk))


def test_pools_profiles_and_queues_of_those_who_administer(
    example: Example, root: User, alice: User, quinn: User, tell: Tell
) -> None:
    assert tell(root, ObjectKind.POOL, example.h100)["see"] == (True, ["administrator"])
    assert tell(alice, ObjectKind.POOL, example.h100)["see"] == (False, ["nothing"])
    assert tell(alice, ObjectKind.PROFILE, example.profile)["see"] == (True, ["by_queue"])
    assert Group.objects.get(name=QUEUE_ADMINS) in quinn.groups.all()
    assert tell(quinn, ObjectKind.QUEUE, example.dev_queue) == {
        "see": (True, ["queue_administrator"]),
        "enqueue": (False, ["nothing"]),
        "manage": (False, ["nothing"]),
    }


def test_vaults_of_groups_and_of_people(
    example: Example, root: User, alice: User, bob: User, charlie: User, tell: Tell
) -> None:
    vault_create(actor=alice, name="hers", text="a = 1")
    own = Vault.objects.get(name="hers")
    vault_create(actor=root, name="shared", text="a = 1", group=Group.objects.get(name="dev"))
    shared = Vault.objects.get(name="shared")
    rule_grant(
        actor=root,
        target=Target(RuleKind.VAULT, str(shared.pk)),
        level=Level.READ,
        subjects=RuleSubjects(users=(charlie,)),
    )

    assert tell(alice, ObjectKind.VAULT, own)["change"] == (True, ["owner"])
    assert tell(root, ObjectKind.VAULT, own)["read"] == (False, ["nothing"])
    assert tell(bob, ObjectKind.VAULT, shared)["see"] == (True, ["vault_group"])
    assert tell(bob, ObjectKind.VAULT, shared)["read"] == (False, ["nothing"])
    assert tell(charlie, ObjectKind.VAULT, shared)["read"] == (True, ["rule"])
    assert tell(charlie, ObjectKind.VAULT, shared)["change"] == (False, ["nothing"])
    assert tell(root, ObjectKind.VAULT, shared)["change"] == (True, ["administrator"])


def test_a_vault_names_each_source_once_and_the_tenant_that_denies_it(
    organisations: Organisations, root: User, charlie: User, tell: Tell
) -> None:
    acme, rival = organisations.acme, organisations.rival
    vault = vault_create(actor=root, name="shared", text="a = 1", group=acme.group)
    target, subjects = Target(RuleKind.VAULT, str(vault.pk)), RuleSubjects(users=(charlie,))
    rule_grant(actor=root, target=target, level=Level.MODIFY, subjects=subjects)

    assert tell(charlie, ObjectKind.VAULT, vault) == dict.fromkeys(
        ("see", "read", "change"), (True, ["rule"])
    )
    assert tell(acme.admin, ObjectKind.VAULT, vault)["change"] == (True, ["tenant_administrator"])
    assert tell(rival.admin, ObjectKind.VAULT, vault)["see"] == (False, ["other_tenant"])
    charlie.groups.add(rival.group)
    assert tell(charlie, ObjectKind.VAULT, vault)["read"] == (False, ["other_tenant"])


def test_whoever_is_deactivated_may_do_nothing(
    example: Example, root: User, alice: User, tell: Tell
) -> None:
    person_deactivate(actor=root, user=alice)

    explained = tell(alice, ObjectKind.QUEUE, example.dev_queue)

    assert set(map(str, explained.values())) == {"(False, ['deactivated'])"}


def test_tenants_are_isolated_and_have_administrators(
    example: Example, root: User, alice: User, bob: User, charlie: User, tell: Tell
) -> None:
    heads = Group.objects.create(name="heads")
    groups = [example.dev.group]
    tenant_create(actor=root, top=example.dev, admin_group=heads, groups=groups)
    others = Group.objects.create(name="others")
    tenant_create(
        actor=root, top=example.research, admin_group=others, groups=[example.research.group]
    )
    bob.groups.set([heads])
    rule_grant(
        actor=root,
        target=Target(RuleKind.QUEUE),
        level=Level.MANAGE,
        subjects=RuleSubjects(users=(charlie,)),
    )

    assert tell(bob, ObjectKind.QUEUE, example.dev_queue)["manage"] == (
        True,
        ["tenant_administrator"],
    )
    assert tell(bob, ObjectKind.POLICY, example.dev)["see"] == (True, ["tenant_administrator"])
    assert tell(bob, ObjectKind.PROFILE, example.profile)["see"][0]
    assert tell(charlie, ObjectKind.QUEUE, example.dev_queue)["manage"] == (False, ["other_tenant"])
    assert tell(charlie, ObjectKind.QUEUE, example.research_queue)["manage"] == (True, ["rule"])


def test_others_ask_about_themselves_and_their_own(
    example: Example, root: User, alice: User, bob: User, charlie: User
) -> None:
    def ask(viewer: User, person: User, pk: int) -> bool:
        explained = explanation(viewer, person=person, thing=ObjectKind.QUEUE, object_id=str(pk))
        return next(
            one.is_held for one in explained.answers if one.permission is PermissionName.SEE
        )

    assert ask(alice, alice, example.dev_queue.pk)
    for viewer, person, pk in (
        (alice, bob, example.dev_queue.pk),
        (alice, alice, example.research_queue.pk),
        (charlie, alice, example.dev_queue.pk),
    ):
        with pytest.raises(NotFound):
            ask(viewer, person, pk)
    target = Target(RuleKind.QUEUE, str(example.dev_queue.pk))
    rule_grant(actor=root, target=target, level=Level.MANAGE, subjects=RuleSubjects(users=(alice,)))
    assert ask(alice, bob, example.dev_queue.pk)
    with pytest.raises(NotFound):
        ask(alice, charlie, example.dev_queue.pk)
