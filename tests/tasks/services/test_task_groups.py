"""Waiting tasks are grouped by user where a limit, or a permission, makes it necessary."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.accounts.services.groups import group_remove, group_save
from apps.allocation.loader import load
from apps.allocation.services import run_pass
from apps.configuration.services.exceeders import policy_set_exceeders
from apps.configuration.services.policies import policy_change, policy_create
from apps.core.errors import Conflict, NeverFits
from apps.events.models import Event
from apps.policies.models import LiveState, Policy, PolicyUserPermission, Profile, Queue
from apps.tasks.models import Attempt, Task, TaskGroup
from apps.tasks.services import task_groups
from tests.allocation.state import begin, end, enqueue, latest, make_node, states
from tests.people import Example

Change = Callable[[User, Example], object]


@pytest.fixture
def served(example: Example) -> Example:
    make_node(example.bare_metal, name="b1")
    make_node(example.h100, name="h1")
    return example


def people_of_task_groups(queue: Queue) -> set[int | None]:
    """The users of the task groups in which the queue's tasks wait."""
    waiting = Task.objects.filter(queue=queue, state="queued")
    return set(waiting.values_list("task_group__user", flat=True))


def test_a_limit_per_person_splits_what_waits_and_its_end_joins_it(
    served: Example, root: User, alice: User, bob: User
) -> None:
    LiveState.objects.update(is_enabled=False)
    tasks = enqueue(alice, served.dev_queue, 2) + enqueue(bob, served.dev_queue, 2)
    before = {task.task_group_id for task in tasks}

    policy_change(actor=root, policy=served.dev, changes={"user_limit": {"gpu": 4}})
    assert people_of_task_groups(served.dev_queue) == {alice.pk, bob.pk}
    policy_change(actor=root, policy=served.dev, changes={"user_limit": {}})

    assert people_of_task_groups(served.dev_queue) == {None}
    assert set(Task.objects.values_list("task_group", flat=True)) == before


def test_regrouping_costs_a_fixed_number_of_queries(
    served: Example, root: User, alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_groups, "MOVED_AT_ONCE", 50)
    LiveState.objects.update(is_enabled=False)
    tasks = [
        *(one for at in range(20) for one in enqueue(alice, served.dev_queue, priority=-at)),
        *(one for at in range(20) for one in enqueue(bob, served.dev_queue, priority=-at)),
    ]
    before = dict(Task.objects.values_list("pk", "task_group"))
    Policy.objects.filter(pk=served.dev.pk).update(user_limit={"gpu": "4"})

    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        assert task_groups.tasks_regroup(policy_ids=[served.dev.pk]) == len(tasks)

    assert len(queries) < 40
    assert people_of_task_groups(served.dev_queue) == {alice.pk, bob.pk}
    for task in Task.objects.select_related("task_group"):
        assert task.task_group is not None
        assert (task.task_group.user_id, task.task_group.priority) == (task.owner_id, task.priority)
    Policy.objects.filter(pk=served.dev.pk).update(user_limit={})
    monkeypatch.setattr(task_groups, "MOVED_AT_ONCE", 7)
    with transaction.atomic():
        assert task_groups.tasks_regroup(policy_ids=[served.dev.pk]) == len(tasks)
    assert dict(Task.objects.values_list("pk", "task_group")) == before


def test_a_limit_per_person_counts_what_ran_before_it(
    served: Example, root: User, alice: User, bob: User
) -> None:
    enqueue(alice, served.dev_queue)
    run_pass()
    policy_change(actor=root, policy=served.dev, changes={"user_limit": {"gpu": 4}})
    hers, his = enqueue(alice, served.dev_queue) + enqueue(bob, served.dev_queue)

    run_pass()

    assert states([hers, his]) == ["queued", "allocated"]
    task_group = TaskGroup.objects.get(user=alice)
    assert task_group.reason_code == "limit"
    assert task_group.reason["reasons"][0]["details"][0]["user"] == alice.pk


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda root, parent, policy: policy_change(
                actor=root, policy=policy, changes={"parent": parent}
            ),
            id="a parent with one",
        ),
        pytest.param(
            lambda root, parent, policy: (
                policy_change(actor=root, policy=parent, changes={"user_limit": {}}),
                policy_change(actor=root, policy=policy, changes={"parent": parent}),
                policy_change(actor=root, policy=parent, changes={"user_limit": {"gpu": 8}}),
            ),
            id="one of the parent",
        ),
    ],
)
def test_a_limit_per_person_above_the_policy_splits_its_task_groups_too(
    served: Example, root: User, alice: User, change: Callable[[User, Policy, Policy], object]
) -> None:
    parent = policy_create(actor=root, name="Lab", group=served.dev.group, user_limit={"gpu": 8})
    enqueue(alice, served.dev_queue)

    change(root, parent, served.dev)

    assert people_of_task_groups(served.dev_queue) == {alice.pk}


def test_who_may_exceed_the_limit_does_and_is_not_counted_in_it(
    served: Example, root: User, alice: User, bob: User
) -> None:
    LiveState.objects.update(preemption="none")
    policy_change(actor=root, policy=served.dev, changes={"reserved": 4, "limit": 4})
    first, second, his = enqueue(alice, served.dev_queue, 2) + enqueue(bob, served.dev_queue)
    run_pass()
    assert states([first, second, his]) == ["allocated", "queued", "queued"]

    policy_set_exceeders(actor=root, policy=served.dev, users=[alice], groups=[])
    (fixed,) = enqueue(alice, served.dev_queue, is_preemptible=False)
    run_pass()

    # Her first one was admitted before and counts; so does work that is not preemptible.
    assert states([first, second, his, fixed]) == ["allocated", "allocated", "queued", "queued"]
    event = Event.objects.filter(kind="task.allocated", object_id=str(second.pk)).get()
    assert event.data["tier"] == "over_quota"
    exceeding = [group for group in load(now_us=0).snapshot.running if group.can_exceed_limit]
    assert [one.task for group in exceeding for one in group.tasks] == [str(second.pk)]


def test_a_group_may_exceed_the_limit_until_it_may_not(
    served: Example, root: User, alice: User
) -> None:
    policy_change(actor=root, policy=served.dev, changes={"reserved": 0, "limit": 4})
    group = served.dev.group
    policy_set_exceeders(actor=root, policy=served.dev, users=[], groups=[group])
    Profile.objects.filter(pk=served.profile.pk).update(request={"gpu": "8"})
    (task,) = enqueue(alice, served.dev_queue)
    assert TaskGroup.objects.get().exceeds_limit

    policy_set_exceeders(actor=root, policy=served.dev, users=[], groups=[])

    assert not Task.objects.select_related("task_group").get(pk=task.pk).task_group.exceeds_limit  # type: ignore[union-attr]  # it waits
    assert run_pass().placed == 0
    assert not Attempt.objects.exists()
    with pytest.raises(NeverFits):
        enqueue(alice, served.dev_queue)


def _leave(group: Group, _alice: User) -> None:
    group.user_set.set([])


def _leave_all(_group: Group, alice: User) -> None:
    alice.groups.clear()


def _dissolve(group: Group, _alice: User) -> None:
    group_remove(actor=None, group=group)


@pytest.mark.parametrize("leave", [_leave, _leave_all, _dissolve])
def test_who_joins_and_leaves_a_group_that_may_exceed_the_limit_waits_by_the_rules_of_now(
    served: Example, root: User, alice: User, leave: Callable[[Group, User], None]
) -> None:
    night = Group.objects.create(name="Night")
    policy_set_exceeders(actor=root, policy=served.dev, users=[], groups=[night])
    (task,) = enqueue(alice, served.dev_queue)

    def may_exceed() -> bool:
        return Task.objects.filter(pk=task.pk, task_group__exceeds_limit=True).exists()

    said = [may_exceed()]
    group_save(actor=None, group=night, description="", members=[alice])
    said.append(may_exceed())
    leave(night, alice)
    said.append(may_exceed())

    assert said == [False, True, False]


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param([], [], False, id="nobody may"),
        pytest.param(["alice"], [], False, id="she may no more"),
        pytest.param([], ["alice"], True, id="she may since"),
    ],
)
def test_work_that_comes_back_to_its_queue_waits_by_the_rules_of_now(
    served: Example, root: User, alice: User, before: list[str], after: list[str], want: bool
) -> None:
    """What changed while it ran concerns it once it waits again."""
    people = {"alice": alice}
    policy_set_exceeders(
        actor=root, policy=served.dev, users=[people[name] for name in before], groups=[]
    )
    (task,) = enqueue(alice, served.dev_queue)
    run_pass()
    begin(latest(task))
    policy_set_exceeders(
        actor=root, policy=served.dev, users=[people[name] for name in after], groups=[]
    )
    policy_change(actor=root, policy=served.dev, changes={"user_limit": {"gpu": 4}})
    Attempt.objects.update(state="stopping", stop_target="queued")
    Task.objects.update(state="stopping")

    end(latest(task))

    task_group = Task.objects.select_related("task_group").get(pk=task.pk).task_group
    assert task_group is not None
    assert (states([task]), task_group.user_id, task_group.exceeds_limit) == (
        ["queued"],
        alice.pk,
        want,
    )


def test_what_somebody_granted_for_another_permission_stays(
    served: Example, root: User, alice: User, bob: User
) -> None:
    policy_set_exceeders(actor=root, policy=served.dev, users=[alice, bob], groups=[])
    policy_set_exceeders(actor=root, policy=served.dev, users=[bob], groups=[])

    kept = PolicyUserPermission.objects.values_list("user__username", "permission__codename")
    assert list(kept) == [("bob", "exceed_limit_policy")]
    assert Event.objects.filter(kind="policy.exceeders").count() == 2


def test_nobody_exceeds_the_limit_of_a_policy_that_is_gone(served: Example, root: User) -> None:
    Policy.objects.filter(pk=served.dev.pk).update(removed_at="2026-03-01T00:00Z")

    with pytest.raises(Conflict):
        policy_set_exceeders(actor=root, policy=served.dev, users=[root], groups=[])
