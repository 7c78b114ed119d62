"""What is told of a person and an object: each right as it is, with every way to it."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group

from apps.accounts.models import QUEUE_ADMINS, User
from apps.accounts.services.people_changes import person_deactivate
from apps.accounts.services.service_accounts import service_account_create
from apps.configuration.rules.explaining import Right, Thing, explanation
from apps.configuration.rules.levels import Kind, Level
from apps.configuration.rules.rule import Target
from apps.configuration.rules.words import reason_words
from apps.configuration.services.narrowing import policy_narrow
from apps.configuration.services.rules import Named, rule_give
from apps.configuration.services.tenants import tenant_make
from apps.core.errors import NotFound
from apps.nodes.models import Node
from apps.tasks.descriptions import Description
from apps.tasks.models import Task
from apps.tasks.services.enqueueing import task_submit
from apps.vaults.models import Vault
from apps.vaults.services.vaults import vault_create
from tests.cast import Example

pytestmark = pytest.mark.django_db
Told = dict[str, tuple[bool, list[str]]]
Tell = Callable[[User, Thing, object], Told]


@pytest.fixture
def tell(root: User) -> Tell:
    """Rights by name, each with the codes of its reasons, as an administrator is told."""

    def do(person: User, thing: Thing, row: object) -> Told:
        fresh = User.objects.get(pk=person.pk)
        pk = str(getattr(row, "pk"))  # noqa: B009  # of any model
        told = explanation(root, person=fresh, thing=thing, object_id=pk)
        for answer in told.answers:
            assert answer.is_held == bool(answer.ways), answer
            assert all(reason_words(one) for one in answer.reasons)
        return {
            answer.right.value: (answer.is_held, [one.code for one in answer.reasons])
            for answer in told.answers
        }

    return do


@pytest.fixture
def task(example: Example, alice: User) -> Task:
    described = Description(name="hers", queue=example.dev_queue.name, command=["true"])
    made = task_submit(actor=alice, description=described)
    return Task.objects.get(pk=made.pk)


def test_a_task_is_its_owners_its_queues_and_its_policys(
    example: Example, task: Task, root: User, alice: User, bob: User, charlie: User, tell: Tell
) -> None:
    example.dev.logs_open_to_group = True
    example.dev.save()

    assert tell(alice, Thing.TASK, task)["manage"] == (True, ["owner"])
    assert tell(bob, Thing.TASK, task) == {
        "see": (True, ["policy_group"]),
        "content": (False, ["nothing"]),
        "log": (True, ["open_logs"]),
        "manage": (False, ["nothing"]),
    }
    assert {held for held, _ in tell(charlie, Thing.TASK, task).values()} == {False}
    assert tell(root, Thing.TASK, task)["content"] == (True, ["administrator"])
    target = Target(Kind.QUEUE, str(example.dev_queue.pk))
    rule_give(actor=root, target=target, level=Level.MANAGE, named=Named(users=(charlie,)))
    assert tell(charlie, Thing.TASK, task)["content"] == (True, ["rule"])


def test_a_service_account_acts_for_owners_where_it_may(
    example: Example, task: Task, root: User, tell: Tell
) -> None:
    plain = service_account_create(actor=root, name="plain", groups=["dev"]).account
    robot = service_account_create(
        actor=root, name="robot", groups=["dev"], can_act_for_owners=True
    ).account

    assert tell(plain, Thing.TASK, task)["act"] == (False, ["may_not_act"])
    assert tell(robot, Thing.TASK, task)["act"] == (True, ["acts"])
    Task.objects.filter(pk=task.pk).update(state="aborted")
    assert tell(robot, Thing.TASK, task)["act"] == (False, ["cannot_act_now"])


def test_who_was_not_chosen_is_told_so(
    example: Example, root: User, alice: User, bob: User, tell: Tell
) -> None:
    policy_narrow(actor=root, policy=example.dev, people=[alice])

    assert tell(alice, Thing.QUEUE, example.dev_queue)["enqueue"] == (True, ["chosen"])
    assert tell(bob, Thing.QUEUE, example.dev_queue)["enqueue"] == (False, ["not_chosen"])


def test_nodes_are_for_administrators(root: User, alice: User, tell: Tell) -> None:
    node = Node.objects.create(name="gpu-1")

    assert tell(root, Thing.NODE, node) == {
        "see": (True, ["administrator"]),
        "manage": (True, ["administrator"]),
    }
    nothing = (False, ["only_administrators"])
    assert tell(alice, Thing.NODE, node) == {"see": nothing, "manage": nothing}
    with pytest.raises(NotFound):
        explanation(alice, person=alice, thing=Thing.NODE, object_id=str(node.pk))


def test_pools_profiles_and_queues_of_those_who_administer(
    example: Example, root: User, alice: User, quinn: User, tell: Tell
) -> None:
    assert tell(root, Thing.POOL, example.h100)["see"] == (True, ["administrator"])
    assert tell(alice, Thing.POOL, example.h100)["see"] == (False, ["nothing"])
    assert tell(alice, Thing.PROFILE, example.profile)["see"] == (True, ["by_queue"])
    assert Group.objects.get(name=QUEUE_ADMINS) in quinn.groups.all()
    assert tell(quinn, Thing.QUEUE, example.dev_queue) == {
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
    rule_give(
        actor=root,
        target=Target(Kind.VAULT, str(shared.pk)),
        level=Level.READ,
        named=Named(users=(charlie,)),
    )

    assert tell(alice, Thing.VAULT, own)["change"] == (True, ["owner"])
    assert tell(root, Thing.VAULT, own)["read"] == (False, ["nothing"])
    assert tell(bob, Thing.VAULT, shared)["see"] == (True, ["vault_group"])
    assert tell(bob, Thing.VAULT, shared)["read"] == (False, ["nothing"])
    assert tell(charlie, Thing.VAULT, shared)["read"] == (True, ["rule"])
    assert tell(charlie, Thing.VAULT, shared)["change"] == (False, ["nothing"])
    assert tell(root, Thing.VAULT, shared)["change"] == (True, ["administrator"])


def test_whoever_is_deactivated_may_do_nothing(
    example: Example, root: User, alice: User, tell: Tell
) -> None:
    person_deactivate(actor=root, user=alice)

    told = tell(alice, Thing.QUEUE, example.dev_queue)

    assert set(map(str, told.values())) == {"(False, ['deactivated'])"}


def test_tenants_are_walls_and_have_administrators(
    example: Example, root: User, alice: User, bob: User, charlie: User, tell: Tell
) -> None:
    heads = Group.objects.create(name="heads")
    groups = [example.dev.group]
    tenant_make(actor=root, top=example.dev, admin_group=heads, groups=groups)
    others = Group.objects.create(name="others")
    tenant_make(
        actor=root, top=example.research, admin_group=others, groups=[example.research.group]
    )
    bob.groups.set([heads])
    rule_give(
        actor=root,
        target=Target(Kind.QUEUE),
        level=Level.MANAGE,
        named=Named(users=(charlie,)),
    )

    assert tell(bob, Thing.QUEUE, example.dev_queue)["manage"] == (True, ["tenant_administrator"])
    assert tell(bob, Thing.POLICY, example.dev)["see"] == (True, ["tenant_administrator"])
    assert tell(bob, Thing.PROFILE, example.profile)["see"][0]
    assert tell(charlie, Thing.QUEUE, example.dev_queue)["manage"] == (False, ["apart"])
    assert tell(charlie, Thing.QUEUE, example.research_queue)["manage"] == (True, ["rule"])


def test_others_ask_about_themselves_and_their_own(
    example: Example, root: User, alice: User, bob: User, charlie: User
) -> None:
    def ask(viewer: User, person: User, pk: int) -> bool:
        told = explanation(viewer, person=person, thing=Thing.QUEUE, object_id=str(pk))
        return next(one.is_held for one in told.answers if one.right is Right.SEE)

    assert ask(alice, alice, example.dev_queue.pk)
    for viewer, person, pk in (
        (alice, bob, example.dev_queue.pk),
        (alice, alice, example.research_queue.pk),
        (charlie, alice, example.dev_queue.pk),
    ):
        with pytest.raises(NotFound):
            ask(viewer, person, pk)
    target = Target(Kind.QUEUE, str(example.dev_queue.pk))
    rule_give(actor=root, target=target, level=Level.MANAGE, named=Named(users=(alice,)))
    assert ask(alice, bob, example.dev_queue.pk)
    with pytest.raises(NotFound):
        ask(alice, charlie, example.dev_queue.pk)
