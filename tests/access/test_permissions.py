"""Sources of permissions agree in every direction, also for built-in groups and across tenants."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from guardian.shortcuts import assign_perm

from apps.access.levels import EXCEED, Level, RuleKind
from apps.access.permissions import holders, may, permission_sources
from apps.access.rules.rule import Target
from apps.accounts.models import QUEUE_ADMINS, User
from apps.accounts.services.people import user_create
from apps.configuration.services.exceeders import policy_set_exceeders
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.policies.models import Policy, Pool, Queue
from apps.vaults.models import Vault
from apps.vaults.services.vaults import vault_create
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db
MODELS: dict[Any, tuple[str, ...]] = {
    Policy: ("view", "enqueue", "manage"),
    Queue: ("view", "enqueue", "manage"),
    Pool: ("view",),
    Vault: ("view", "read", "change", "own"),
}


@pytest.fixture
def mixed(organisations: Organisations, root: User, quinn: User, charlie: User) -> Organisations:
    """An administrator who is in a tenant, and a queue administrator of one, which RPM refuses."""
    organisations.acme.member.groups.add(Group.objects.get(name=QUEUE_ADMINS))
    root.groups.add(organisations.rival.group)
    _add_vaults(organisations, root)
    return organisations


def _add_vaults(organisations: Organisations, root: User) -> None:
    acme, rival = organisations.acme, organisations.rival
    reader = user_create(username="wanda", password=None)
    for owner in (root, acme.member, reader):
        vault = vault_create(actor=owner, name="personal")
        for user in (reader, acme.member, rival.member):
            assign_perm("view_vault", user, vault)
    for group in (acme.group, rival.group, Group.objects.get(name="dev")):
        vault = vault_create(actor=root, name=f"of {group.name}", group=group)
        target = Target(RuleKind.VAULT, str(vault.pk), vault.name)
        subjects = RuleSubjects(users=(reader,))
        rule_grant(actor=root, target=target, level=Level.MODIFY, subjects=subjects)
    # The reader joins a tenant: the rules on vaults of the other one give nothing since.
    reader.groups.add(rival.group)


def test_the_user_holds_what_has_a_source_and_is_among_the_holders(mixed: Organisations) -> None:
    checked = 0
    for model, verbs in MODELS.items():
        for row in model._default_manager.filter(removed_at__isnull=True):
            for verb in verbs:
                people = set(holders(row, verb).values_list("pk", flat=True))
                for user in User.objects.all():
                    sources = [one.code for one in permission_sources(user, verb, row)]
                    is_held = may(user, verb, row)
                    why = (user.username, verb, row, sources)
                    assert is_held == (user.pk in people), why
                    assert is_held == (not {"nothing", "other_tenant"} & set(sources)), why
                    checked += 1
    assert checked > 300


def test_tenant_isolation_does_not_bind_administrators_of_the_installation(
    mixed: Organisations, root: User
) -> None:
    queue = mixed.acme.queue

    assert may(root, "manage", queue)
    assert root in holders(queue, "manage")
    assert permission_sources(root, "manage", queue)[0].code == "administrator"


def test_a_queue_administrator_of_a_tenant_sees_no_queue_of_another(mixed: Organisations) -> None:
    member = User.objects.get(pk=mixed.acme.member.pk)

    assert may(member, "view", mixed.acme.queue)
    assert may(member, "view", mixed.example.dev_queue)
    assert not may(member, "view", mixed.rival.queue)
    codes = [one.code for one in permission_sources(member, "view", mixed.rival.queue)]
    assert codes == ["other_tenant"]


def test_exceeding_a_limit_comes_from_rules_on_the_policy_alone(
    mixed: Organisations, root: User, charlie: User
) -> None:
    policy = mixed.example.dev
    policy_set_exceeders(actor=root, policy=policy, users=[charlie], groups=[])

    assert [one.username for one in holders(policy, EXCEED)] == ["charlie"]
    assert may(charlie, EXCEED, policy)
    assert not may(root, EXCEED, policy)


@pytest.mark.parametrize(("name", "want_queries"), [("root", 2), ("alice", 3)])
def test_permissions_take_no_query_per_source(
    organisations: Organisations,
    alice: User,
    django_assert_num_queries: Any,
    name: str,
    want_queries: int,
) -> None:
    user = User.objects.get(username=name)

    with django_assert_num_queries(want_queries):
        assert may(user, "view", organisations.example.dev_queue)
