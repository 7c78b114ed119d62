"""When a tenant is made or undone, sockets of those whose permissions change close."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group, Permission
from pytest_django import DjangoCaptureOnCommitCallbacks

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change
from apps.configuration.services.tenants import tenant_create, tenant_remove
from apps.policies.models import PolicyUserPermission, QueueGroupPermission
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db

ClosedBy = Callable[[Callable[[], object]], set[str]]


@pytest.fixture
def closed_sockets(
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> ClosedBy:
    """Names of those whose sockets some work closes."""

    def of(work: Callable[[], object]) -> set[str]:
        notified: list[str] = []
        monkeypatch.setattr(
            "apps.core.notifications._notifier.notify",
            lambda *, topics, **_: notified.extend(topics),
        )
        with django_capture_on_commit_callbacks(execute=True):
            work()
        people = {topic.partition(".")[2] for topic in notified if topic.startswith("user.")}
        return set(User.objects.filter(pk__in=people).values_list("username", flat=True))

    return of


def _rules_of_other_tenants(organisations: Organisations, quinn: User, charlie: User) -> None:
    """Quinn sees the policy `dev`, Charlie's group its queue."""
    dev, queue = organisations.example.dev, organisations.example.dev_queue
    see = Permission.objects.get(codename="view_policy")
    PolicyUserPermission.objects.create(content_object=dev, user=quinn, permission=see)
    see = Permission.objects.get(codename="view_queue")
    for group in charlie.groups.exclude(name="Users"):
        QueueGroupPermission.objects.create(content_object=queue, group=group, permission=see)


def test_a_policy_that_joins_a_tenant_notifies_it_and_rule_holders(
    root: User,
    organisations: Organisations,
    alice: User,
    charlie: User,
    quinn: User,
    closed_sockets: ClosedBy,
) -> None:
    acme, dev = organisations.acme, organisations.example.dev
    _rules_of_other_tenants(organisations, quinn, charlie)
    tenant_group = acme.group

    names = closed_sockets(
        lambda: policy_change(
            actor=root, policy=dev, changes={"parent": acme.top, "group": tenant_group}
        )
    )

    assert {"ada", "adam", "alice", "charlie", "quinn"} <= names
    assert not {name for name in names if name.startswith("rival")}


def test_a_change_within_one_tenant_notifies_nobody(
    root: User, organisations: Organisations, closed_sockets: ClosedBy
) -> None:
    assert not closed_sockets(
        lambda: policy_change(actor=root, policy=organisations.example.dev, changes={"weight": 2})
    )
    assert not closed_sockets(
        lambda: policy_change(
            actor=root, policy=organisations.acme.team, changes={"parent": organisations.acme.top}
        )
    )


def test_creating_and_removing_a_tenant_notifies_rule_holders(
    root: User,
    organisations: Organisations,
    dev_group: Group,
    alice: User,
    charlie: User,
    quinn: User,
    closed_sockets: ClosedBy,
) -> None:
    heads = Group.objects.create(name="heads")
    _rules_of_other_tenants(organisations, quinn, charlie)
    every = Permission.objects.get(codename="view_queue")
    organisations.rival.member.user_permissions.add(every)
    made = []

    names = closed_sockets(
        lambda: made.append(
            tenant_create(
                actor=root, top=organisations.example.dev, admin_group=heads, groups=[dev_group]
            )
        )
    )

    wanted = {"alice", "charlie", "quinn", organisations.rival.member.username}
    assert wanted <= names
    assert wanted <= closed_sockets(lambda: tenant_remove(actor=root, tenant=made[0]))
    assert "ada" not in names
