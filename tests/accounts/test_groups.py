"""Groups decide what people may do."""

import pytest
from django.contrib.auth.models import Group

from apps.access.selectors import queues_visible_to
from apps.access.services.vaults import vault_remove
from apps.accounts.models import ADMINS, User
from apps.accounts.selectors import is_admin
from apps.accounts.services.groups import group_remove, group_save, user_groups_set
from apps.core.errors import BadInput, Conflict
from apps.vaults.services.maintenance import vaults_remove_unused
from apps.vaults.services.vaults import vault_create
from tests.people import Example

pytestmark = pytest.mark.django_db


def again(user: User) -> User:
    """The same person in their next request."""
    return User.objects.get(pk=user.pk)


def test_members_come_and_go_with_their_permissions(
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
     "\u202esnimdA", "Te\nam", "Team\u2066x", "\u0422eam", "Admins\u3164", "\u115fAdmins",
     "Ad\u1160mins", "Admins\uffa0", "Us\u034fers", "Team\ufe0f", "Team\ufe00", "Team\u180b",
     "Team\U000e0100", "Team\u17b4", "Te\u200dam", "Te\u200cam", "Team\u200d", "\u200cTeam",
     "\u06af\u200c", "\u06af\u200c\u200c\u0647", "\u06af\u200cx", "\u0422\u0301eam",
     "\u0422\u200aeam", "\u04223am", "Adm\u01c0ns", "Admins\u02bc", "Admins\ua4f8",
     "\ua4ee\ua4d3\ua4df\ua4f2\ua4e0\ua4e2", "\ua4f4\ua4e2\ua4f0\ua4e3\ua4e2",
     "Queue \ua4ee\ua4d3\ua4df\ua4f2\ua4e0\ua4e2", "\u13aa\u13a0\u13b7\u13c6\u13c1\u13da",
     "\uab7a\uab70\uab87\u13a5\u13c1\uabaa", "\u13cc\u13da\u13ac\u13a1\u13da",
     "\u15e9\u15ea\u15f0\u14f0\u144e\u1515", "Команда Ελλάς"],
)  # fmt: skip
def test_no_group_looks_like_a_built_in_one(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        group_save(actor=None, group=Group(name=name), description="")

    assert list(refused.value.fields) == ["name"]


@pytest.mark.parametrize("name",
    ["Admins of Dev", "Superusers", "Администраторы", "Chiefs", "Équipe Zürich 2", "C++ & GPU",
     "研究チーム ML", "연구팀", "佐々木チーム", "人々", "〆切", "Цех №5", "Команда ML",
     "ML-команда", "Ком\u02bcюніті", "Hawai\u02bbi", "β testers", "گروه\u200cها", "क्\u200dष",
     "അഡ്മിന്\u200d", "ＡＩ研究", "Team \u2600\ufe0f", "Team \U0001f469\U0001f3fd\u200d\U0001f52c",
     "Team 1\ufe0f\u20e3", "\U0001f3f3\ufe0f\u200d\U0001f308"],
)  # fmt: skip
def test_other_names_of_groups_are_taken(name: str) -> None:
    assert group_save(actor=None, group=Group(name=name), description="").pk


def test_a_group_keeps_a_name_that_is_refused_today() -> None:
    group = Group.objects.create(name="\u0422eam")

    group_save(actor=None, group=group, description="From before.")
    group.name = "\u0410dmins"
    with pytest.raises(BadInput):
        group_save(actor=None, group=group, description="")

    assert Group.objects.get(pk=group.pk).info.description == "From before."


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
    vaults_remove_unused(())
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
