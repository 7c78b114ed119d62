"""Services refuse actors without a permission, whatever called them."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group

from apps.accounts.models import QUEUE_ADMINS, User
from apps.accounts.services.groups import group_save, user_groups_set
from apps.accounts.services.invitations import person_invite
from apps.configuration.services.policies import policy_change, policy_create
from apps.configuration.services.queues import profile_connect, profile_disconnect, queue_change
from apps.configuration.services.tenant_checks import queue_settings_of
from apps.core.errors import BadInput, NotAllowed
from apps.policies.models import Policy, Profile, Queue
from tests.people import Example

pytestmark = pytest.mark.django_db

Work = Callable[[User, Example, User], object]
SERVICES: dict[str, Work] = {
    "makes a group": lambda actor, _, __: group_save(
        actor=actor, group=Group(name="new"), description=""
    ),
    "gives groups": lambda actor, example, bob: user_groups_set(
        actor=actor, user=bob, groups=[example.research.group]
    ),
    "invites": lambda actor, example, _: person_invite(
        actor=actor, address=str, username="new", groups=[example.dev.group]
    ),
    "makes a policy": lambda actor, example, _: policy_create(
        actor=actor, name="new", group=example.dev.group
    ),
    "changes a policy": lambda actor, example, _: policy_change(
        actor=actor, policy=example.dev, changes={"limit": {"gpu": 64}}
    ),
    "changes a queue": lambda actor, example, _: queue_change(
        actor=actor, queue=example.dev_queue, changes={"max_priority": 9}
    ),
    "connects a profile": lambda actor, example, _: profile_connect(
        actor=actor, policy=example.dev, profile=Profile.objects.get(name="2xGPU")
    ),
    "disconnects a profile": lambda actor, example, _: profile_disconnect(
        actor=actor, queue=example.dev_queue
    ),
}


@pytest.mark.parametrize("work", SERVICES.values(), ids=SERVICES)
@pytest.mark.parametrize("is_acted_for", [False, True], ids=["administers nothing", "acted for"])
def test_who_administers_nothing_is_refused(
    example: Example, root: User, alice: User, bob: User, work: Work, is_acted_for: bool
) -> None:
    actor = User.objects.get(pk=root.pk if is_acted_for else alice.pk)
    if is_acted_for:
        # A service account acts for an administrator: what administers falls away.
        actor.acted_by_id = alice.pk

    with pytest.raises(NotAllowed):
        work(actor, example, bob)

    assert not Group.objects.filter(name="new").exists()
    assert not User.objects.filter(username="new").exists()
    assert not Policy.objects.filter(name="new").exists()
    assert not bob.groups.filter(name="research").exists()
    assert Queue.objects.get(pk=example.dev_queue.pk).max_priority != 9
    assert Queue.objects.filter(removed_at=None).count() == 2


def test_administrators_of_queues_set_all_of_a_queue_and_others_nothing(
    example: Example, quinn: User, alice: User
) -> None:
    queue_change(actor=quinn, queue=example.dev_queue, changes={"max_priority": 9})

    assert Queue.objects.get(pk=example.dev_queue.pk).max_priority == 9
    assert not queue_settings_of(alice)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_priority": 9},
        {"max_waiting": 9999},
        {"grace_s": 600},
        {"idle_warn_minutes": 90},
        {"allow_streams": False},
    ],
)
def test_nobody_raises_the_limits_of_a_queue_of_their_own_team(
    example: Example, alice: User, root: User, changes: dict[str, int]
) -> None:
    alice.groups.add(Group.objects.get(name=QUEUE_ADMINS))

    with pytest.raises(BadInput) as refused:
        queue_change(actor=alice, queue=example.dev_queue, changes=changes)

    assert set(refused.value.fields) == set(changes)
    queue_change(actor=alice, queue=example.research_queue, changes=changes)
    queue_change(actor=alice, queue=example.dev_queue, changes={"name": "renamed"})
    queue_change(actor=root, queue=example.dev_queue, changes=changes)


LIMITS = {
    "allow_over_quota": False,
    "allow_streams": False,
    "max_waiting": 5,
    "idle_warn_minutes": 30,
    "idle_stop_minutes": 60,
    "min_runtime_s": 0,
    "max_preemptions": None,
    "grace_s": 10,
    "max_priority": -10,
}


def settings_of(queue: Queue) -> dict[str, object]:
    return {name: getattr(Queue.objects.get(pk=queue.pk), name) for name in LIMITS}


@pytest.fixture
def own_queue_admin(example: Example, root: User, alice: User) -> User:
    """Administers queues, and is in the group of the policy whose queue has limits."""
    alice.groups.add(Group.objects.get(name=QUEUE_ADMINS))
    queue_change(actor=root, queue=example.dev_queue, changes=LIMITS)
    return User.objects.get(pk=alice.pk)


def test_a_queue_that_is_closed_and_connected_again_has_the_settings_of_before(
    example: Example, own_queue_admin: User, root: User
) -> None:
    queue_change(actor=root, queue=example.dev_queue, changes={"on_preemption": "pause"})
    queue = example.dev_queue

    for actor in (own_queue_admin, own_queue_admin, root):
        profile_disconnect(actor=actor, queue=queue)
        queue = profile_connect(actor=actor, policy=example.dev, profile=example.profile)

        assert settings_of(queue) == LIMITS
        assert queue.on_preemption == "pause"


@pytest.mark.parametrize("is_closed_first", [True, False])
def test_another_profile_does_not_get_their_own_team_around_the_limits_of_its_queues(
    example: Example, own_queue_admin: User, root: User, is_closed_first: bool
) -> None:
    other = Profile.objects.get(name="2xGPU")
    if is_closed_first:
        profile_disconnect(actor=own_queue_admin, queue=example.dev_queue)

    queue = profile_connect(actor=own_queue_admin, policy=example.dev, profile=other)
    for_others = profile_connect(actor=own_queue_admin, policy=example.research, profile=other)
    by_root = profile_connect(
        actor=root, policy=example.dev, profile=Profile.objects.get(name="8xGPU")
    )

    assert settings_of(queue) == LIMITS
    assert for_others.allow_over_quota
    assert by_root.max_waiting is None


def test_of_limits_that_differ_their_own_team_gets_the_strictest(
    example: Example, own_queue_admin: User, root: User
) -> None:
    other, third = (Profile.objects.get(name=name) for name in ("2xGPU", "8xGPU"))
    loose = profile_connect(actor=root, policy=example.dev, profile=other)
    limits = {"max_preemptions": 3, "grace_s": 600, "min_runtime_s": 900, "max_priority": 9}
    limits |= {"idle_warn_minutes": 59, "idle_stop_minutes": 600}
    queue_change(actor=root, queue=loose, changes=limits)

    queue = profile_connect(actor=own_queue_admin, policy=example.dev, profile=third)

    assert settings_of(queue) == LIMITS
