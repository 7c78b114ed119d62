"""Groups decide what people may do."""

import pytest
from django.contrib.auth.models import Group

from apps.accounts.models import ADMINS, User
from apps.accounts.selectors import is_admin
from apps.accounts.services.groups import group_remove, group_save, user_groups_set
from apps.core.errors import BadInput, Conflict
from apps.policies.selectors import queues_visible_to
from apps.vaults.services.keeping import vaults_sweep
from apps.vaults.services.vaults import vault_create, vault_remove
from tests.cast import Example

pytestmark = pytest.mark.django_db


def again(user: User) -> User:
    """The same person in their next request."""
    return User.objects.get(pk=user.pk)


def test_members_come_and_go_with_their_rights(
    alice: User, charlie: User, dev_group: Group, example: Example
) -> None:
    group_save(actor=None, group=dev_group, description="The builders.", members=[charlie])

    assert [q.name for q in queues_visible_to(again(charlie)).order_by("name")] == [
        "dev-4xgpu",
        "research-4xgpu",
    ]
    assert not queues_visible_to(again(alice)).exists()


def test_built_in_groups_keep_their_names_and_stay(root: User) -> None:
    admins = Group.objects.get(name=ADMINS)

    with pytest.raises(Conflict):
        group_remove(actor=None, group=admins)
    admins.name = "Chiefs"
    with pytest.raises(Conflict):
        group_save(actor=None, group=admins, description="", members=[root])


@pytest.mark.parametrize(
    "name",
    ["admins", "Admins ", "ADMINS.", "Adm1ns", "\u0410dmins", "Adm\u0131ns", "Ad\u200bmins",
     "\uff21dmins", "\u00c1dmins", "Queue-admins", "QueueAdmins", "Us\u0435rs", "user\u0455",
     "Adrnins", "Queue adrnins", "Aclmins", "\u13aadmins", "\ua4eedmins", "\u1d00dmins",
     "\u0245DMINS", "\u15c5dmins", "\u2200dmins", "\u0531\u0564mins", "A\u146fmins",
     "Adm\u2c93ns", "Adm\U00011700ns", "\uabafueue admins", "Q\u1d1ceue admins",
     "\u202esnimdA", "Te\nam", "Team\u2066x", "\u0422eam"],
)  # fmt: skip
def test_no_group_looks_like_a_built_in_one(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        group_save(actor=None, group=Group(name=name), description="")

    assert list(refused.value.fields) == ["name"]


@pytest.mark.parametrize("name",
    ["Admins of Dev", "Superusers", "Администраторы", "Chiefs", "Équipe Zürich 2", "C++ & GPU",
     "研究チーム ML", "연구팀"],
)  # fmt: skip
def test_other_names_of_groups_are_taken(name: str) -> None:
    assert group_save(actor=None, group=Group(name=name), description="").pk


def test_somebody_must_stay_in_admins(root: User) -> None:
    with pytest.raises(Conflict):
        group_save(actor=None, group=Group.objects.get(name=ADMINS), description="", members=[])
    root.groups.clear()
    with pytest.raises(Conflict):
        user_groups_set(actor=None, user=root, groups=[])

    root.groups.set(Group.objects.filter(name=ADMINS))
    assert is_admin(again(root))


def test_a_group_of_a_vault_is_not_removed_and_says_why(root: User, dev_group: Group) -> None:
    vault = vault_create(actor=root, name="team", group=dev_group)

    with pytest.raises(Conflict) as refused:
        group_remove(actor=root, group=dev_group)
    vault_remove(actor=root, vault=vault)
    with pytest.raises(Conflict):
        group_remove(actor=root, group=dev_group)
    vaults_sweep(())
    group_remove(actor=root, group=dev_group)

    assert "is the group of vaults" in refused.value.detail
    assert "policies" not in refused.value.detail
    assert not Group.objects.filter(name="dev").exists()


def test_a_group_of_a_policy_is_not_removed(dev_group: Group, example: Example) -> None:
    with pytest.raises(Conflict):
        group_remove(actor=None, group=dev_group)

    assert Group.objects.filter(name="dev").exists()


def test_a_group_without_policies_goes(db: None) -> None:
    group = group_save(actor=None, group=Group(name="guests"), description="", members=[])

    group_remove(actor=None, group=group)

    assert not Group.objects.filter(name="guests").exists()


def test_names_of_groups_are_unique(dev_group: Group) -> None:
    with pytest.raises(BadInput) as refused:
        group_save(actor=None, group=Group(name="dev"), description="", members=[])

    assert "name" in refused.value.fields
