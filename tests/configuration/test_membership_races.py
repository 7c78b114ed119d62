"""Memberships and tenants change at the same time: neither overtakes the other."""

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction

from apps.accounts.identity.claims import ProviderIdentity
from apps.accounts.models import IdentityGroup, IdentityProvider, Protocol, User
from apps.accounts.services.groups import (
    group_members_add,
    group_members_remove,
    group_remove,
    group_save,
    user_groups_set,
)
from apps.accounts.services.identity_log_in import identity_accept, memberships_sync
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_change
from apps.accounts.services.service_accounts import (
    service_account_change,
    service_account_create,
    service_account_remove,
)
from apps.accounts.services.tenancy import one_tenant_check
from apps.configuration.services.restrictions import policy_restrict
from apps.configuration.services.rows import live_lock
from apps.configuration.services.tenants import tenant_create
from apps.core.errors import BadInput
from tests.people import Example
from tests.services.timeouts import scale_timeout
from tests.tenants import Organisations

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

AT_MOST_S = 20


class ConcurrentWork:
    """A piece of work in a thread of its own, which ends or waits for a lock."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.result: object = None
        self._work = work
        self._pid = 0
        self._thread = threading.Thread(target=self._run)

    def begin(self) -> None:
        """Begin, and return as soon as it is done or waits."""
        self._thread.start()
        began = time.monotonic()
        while self._thread.is_alive() and not self._waits():
            assert time.monotonic() - began < scale_timeout(AT_MOST_S)
            self._thread.join(0.01)

    def end(self) -> object:
        """What it returned, or raised."""
        self._thread.join(scale_timeout(AT_MOST_S))
        assert not self._thread.is_alive()
        return self.result

    def _run(self) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                self._pid = cursor.fetchone()[0]
            self.result = self._work()
        except Exception as error:  # noqa: BLE001  # looked at by the test
            self.result = error
        finally:
            connections.close_all()

    def _waits(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted", [self._pid]
            )
            return bool(cursor.fetchone()[0])


@pytest.fixture
def restricted(root: User, example: Example, alice: User) -> Example:
    """Changes of who is in its group change who may use the policy."""
    policy_restrict(actor=root, policy=example.dev, people=[alice])
    return example


def _provider(group: Group) -> IdentityProvider:
    provider = IdentityProvider.objects.create(
        name="ours", slug="ours", protocol=Protocol.OIDC, syncs_groups=True
    )
    IdentityGroup.objects.create(provider=provider, external_name="dev", group=group)
    return provider


def _invited(provider: IdentityProvider) -> Callable[[], object]:
    user = user_create(username="ines", password=None, email="ines@example.org")
    User.objects.filter(pk=user.pk).update(is_pending=True)
    identity = ProviderIdentity(
        uid="1",
        email="ines@example.org",
        is_email_verified=True,
        name="Ines",
        user_name="ines",
        given_name="Ines",
        groups=("dev",),
    )
    return partial(identity_accept, provider=provider, identity=identity)


def _member(root: User, group: Group) -> User:
    return service_account_create(actor=root, name="ci", groups=[group.name]).account


Change = Callable[[User, User, Group], Callable[[], object]]
CHANGES: dict[str, Change] = {
    "a person is changed": lambda root, bob, _: partial(
        person_change, actor=root, user=bob, changes={"first_name": "Bob"}, groups=[]
    ),
    "groups are set": lambda root, bob, _: partial(
        user_groups_set, actor=root, user=bob, groups=[]
    ),
    "members leave": lambda root, bob, dev: partial(
        group_members_remove, actor=root, group=dev, users=[bob]
    ),
    "members join": lambda root, _, dev: partial(
        group_members_add, actor=root, group=dev, users=[root]
    ),
    "a group is saved": lambda root, _, dev: partial(
        group_save, actor=root, group=dev, description="Builders.", members=[root]
    ),
    "a provider says so": lambda _, bob, dev: partial(
        memberships_sync, provider=_provider(dev), user=bob, external=[]
    ),
    "somebody invited comes in": lambda _, __, dev: _invited(_provider(dev)),
    "a service account is changed": lambda root, _, dev: partial(
        service_account_change, actor=root, account=_member(root, dev), groups=[]
    ),
    "a service account is removed": lambda root, _, dev: partial(
        service_account_remove, actor=root, account=_member(root, dev)
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_membership_changes_lock_tenants_before_restrictions(
    restricted: Example,
    root: User,
    bob: User,
    dev_group: Group,
    change: Change,
) -> None:
    concurrent = ConcurrentWork(change(root, bob, dev_group))

    with transaction.atomic():
        live_lock()
        concurrent.begin()
        # As changes of tenants and restrictions do, which hold the live side then.
        list(Group.objects.select_for_update(no_key=True).order_by("pk"))
        one_tenant_check(User.objects.values_list("pk", flat=True))

    assert not isinstance(concurrent.end(), Exception), concurrent.result


def test_who_is_let_in_while_their_group_goes_to_another_tenant_is_refused(
    root: User, organisations: Organisations, dev_group: Group
) -> None:
    ada = organisations.acme.member
    heads = Group.objects.create(name="heads")
    concurrent = ConcurrentWork(lambda: group_members_add(actor=root, group=dev_group, users=[ada]))

    with transaction.atomic():
        tenant_create(
            actor=root, top=organisations.example.dev, admin_group=heads, groups=[dev_group]
        )
        concurrent.begin()

    assert isinstance(concurrent.end(), BadInput)
    assert not ada.groups.filter(pk=dev_group.pk).exists()


def test_a_tenant_is_not_made_of_a_group_that_somebody_of_another_is_joining(
    root: User, organisations: Organisations, dev_group: Group
) -> None:
    ada = organisations.acme.member
    heads = Group.objects.create(name="heads")
    concurrent = ConcurrentWork(
        lambda: tenant_create(
            actor=root, top=organisations.example.dev, admin_group=heads, groups=[dev_group]
        )
    )

    with transaction.atomic():
        user_groups_set(actor=root, user=ada, groups=[organisations.acme.group, dev_group])
        concurrent.begin()

    assert isinstance(concurrent.end(), BadInput)
    assert ada.groups.filter(pk=dev_group.pk).exists()


def test_a_group_that_becomes_a_tenants_is_removed_before_or_after(
    root: User, organisations: Organisations
) -> None:
    heads, guests = (Group.objects.create(name=name) for name in ("heads", "guests"))
    research = organisations.example.research
    concurrent = ConcurrentWork(
        lambda: group_remove(actor=root, group=Group.objects.get(name="guests"))
    )

    with transaction.atomic():
        live_lock()
        concurrent.begin()
        tenant_create(actor=root, top=research, admin_group=heads, groups=[research.group, guests])

    assert not isinstance(concurrent.end(), Exception), concurrent.result
