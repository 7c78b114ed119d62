"""No task gets a volume that its owner may not mount: when it is enqueued, and when it starts."""

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field

import msgspec
import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import example as hypothesis_example
from hypothesis import strategies as st

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.accounts.services.groups import group_members_add, group_members_remove
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_deactivate
from apps.configuration.services.rules import RuleSubjects, rule_grant, rule_remove
from apps.core.errors import BadInput
from apps.core.origin import acts_for
from apps.execution.container_specs import container_spec
from apps.execution.node.arguments import podman_run
from apps.execution.node.specs import spec_of
from apps.nodes.models import Volume
from apps.nodes.services import volume_change, volume_create, volume_remove
from apps.policies.models import Profile
from apps.tasks.models import Attempt, HeldDevice, Member, Task
from apps.tasks.services.enqueue.submission import (
    task_change,
    task_create,
    task_enqueue,
    task_run_again,
    task_submit,
)
from apps.tasks.task_spec import TaskSpec
from tests.allocation.state import change_content
from tests.execution.node.test_arguments import MEMBER, PATHS
from tests.execution.services.scripted_node import ScriptedNode, done, launch, states_of
from tests.people import Example

NAMES = ("data", "scratch")
LEVELS = (Level.READ, Level.MODIFY)


def about(volume: Volume) -> Target:
    return Target(RuleKind.VOLUME, str(volume.pk), volume.name)


def give(root: User, volume: Volume, subject: User | Group, level: Level = Level.MODIFY) -> None:
    subjects = (
        RuleSubjects(users=(subject,))
        if isinstance(subject, User)
        else RuleSubjects(groups=(subject,))
    )
    rule_grant(actor=root, target=about(volume), level=level, subjects=subjects)


@pytest.fixture
def volumes(root: User, example: Example) -> dict[str, Volume]:
    Profile.objects.update(volumes=list(NAMES))
    return {
        name: volume_create(actor=root, values={"name": name, "path": f"/srv/{name}"})
        for name in NAMES
    }


# --- a model ---------------------------------------------------------------------------------


@dataclass
class World:
    """What happened, without rows; `given` by volume and subject."""

    root: User
    people: list[User]
    teams: list[Group]
    volumes: dict[str, Volume]
    restricted: set[str] = field(default_factory=set)
    members: set[tuple[int, int]] = field(default_factory=set)
    given: dict[tuple[str, bool, int], Level] = field(default_factory=dict)
    deactivated: set[int] = field(default_factory=set)

    def level(self, user: User, name: str, *, is_by_owner: bool = True) -> Level | None:
        """The naive model: MODIFY mounts to write, READ to read."""
        if name not in self.restricted or (user == self.root and is_by_owner):
            return Level.MODIFY
        if user.pk in self.deactivated:
            return None
        groups = {team for person, team in self.members if person == user.pk}
        held = {
            level
            for (volume, is_group, pk), level in self.given.items()
            if volume == name and (pk in groups if is_group else pk == user.pk)
        }
        return max(held, key=LEVELS.index, default=None)


@pytest.fixture
def world(root: User, dev_group: Group, attempt: Attempt, volumes: dict[str, Volume]) -> World:
    people = [user_create(username=f"p-{n}", password=None, groups=["dev"]) for n in range(2)]
    root.groups.add(dev_group)
    teams = [Group.objects.create(name=f"team-{n}") for n in range(2)]
    return World(root, people, teams, volumes)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                ["give", "give", "remove", "join", "leave", "lift", "dissolve", "deactivate"]
            ),
            *(st.integers(0, 1) for _ in range(4)),
        ),
        max_size=10,
    )
)
@hypothesis_example(
    steps=[
        ("give", 0, 0, 0, 1),
        ("deactivate", 0, 0, 0, 0),
        ("give", 0, 0, 1, 1),
        ("give", 0, 1, 1, 0),
        ("join", 0, 0, 0, 0),
    ]
)
def test_volumes_are_mounted_by_those_of_the_naive_model(
    world: World, steps: list[tuple[str, int, int, int, int]]
) -> None:
    with transaction.atomic():
        fresh = World(world.root, world.people, list(world.teams), world.volumes)
        for step in steps:
            _do(fresh, *step)
        for user in (*fresh.people, fresh.root):
            for name in NAMES:
                _compare_submissions(user, name, fresh.level(user, name))
                for is_by_owner in (True, False):
                    Task.objects.update(owner=user, is_by_owner=is_by_owner)
                    level = fresh.level(user, name, is_by_owner=is_by_owner)
                    _compare_launches(user, name, level)
        transaction.set_rollback(True)


def _do(world: World, what: str, a: int, b: int, c: int, d: int) -> None:
    person, name, level = world.people[a], NAMES[b], LEVELS[c]
    team = world.teams[a % len(world.teams)] if world.teams else None
    # No rule names a deactivated person.
    is_named = (d or team is None) and person.pk not in world.deactivated
    if what == "give" and is_named:
        give(world.root, world.volumes[name], person, level)
        world.given[name, False, person.pk] = level
        world.restricted.add(name)
    elif what == "give" and team is not None:
        give(world.root, world.volumes[name], team, level)
        world.given[name, True, team.pk] = level
        world.restricted.add(name)
    elif what == "remove":
        gone = {key for key, had in world.given.items() if key[0] == name and had is level}
        if gone:
            rule_remove(actor=world.root, target=about(world.volumes[name]), level=level)
            world.given = {key: had for key, had in world.given.items() if key not in gone}
    elif what == "lift":
        values = {"is_restricted": False}
        volume_change(actor=world.root, volume=world.volumes[name], values=values)
        world.restricted.discard(name)
    elif what == "deactivate":
        person_deactivate(actor=world.root, user=User.objects.get(pk=person.pk))
        world.deactivated.add(person.pk)
    elif team is not None:
        _change_members(world, what, person, team)


def _change_members(world: World, what: str, person: User, team: Group) -> None:
    if what == "join":
        group_members_add(actor=world.root, group=team, users=[person])
        world.members.add((person.pk, team.pk))
    elif what == "leave":
        group_members_remove(actor=world.root, group=team, users=[person])
        world.members.discard((person.pk, team.pk))
    elif what == "dissolve":
        gone = team.pk
        Group.objects.get(pk=gone).delete()
        world.teams.remove(team)
        world.given = {key: had for key, had in world.given.items() if key[1:] != (True, gone)}


def _compare_submissions(user: User, name: str, level: Level | None) -> None:
    person = User.objects.get(pk=user.pk)
    if person.is_active:
        assert _is_accepted(person, volumes=[name]) == (level is not None), (user, name)
        assert _is_accepted(person, checkpoint_volume=name) == (level is Level.MODIFY), (user, name)


def _compare_launches(user: User, name: str, level: Level | None) -> None:
    change_content(volumes=[name], checkpoint_volume="")
    words = _arguments()
    found = [word for word in words if f"/srv/{name}" in word]
    assert len(found) == (level is not None), (user, name, words)
    assert [word.endswith(",readonly") for word in found] == [level is Level.READ] * len(found)
    change_content(volumes=[], checkpoint_volume=name)
    assert bool(_arguments()) == (level is Level.MODIFY), (user, name)


def _is_accepted(user: User, **fields: object) -> bool:
    queue = Task.objects.get().queue_id
    spec = wanted(queue=queue, **fields)
    try:
        with transaction.atomic():
            task_submit(actor=user, spec=spec)
            transaction.set_rollback(True)
    except BadInput:
        return False
    return True


def _arguments() -> list[str]:
    """Of the container of the only task; empty where it is refused."""
    member = Member.objects.select_related(
        "attempt__task__owner", "attempt__queue__profile", "node"
    ).get()
    try:
        spec = container_spec(member)
    except BadInput:
        return []
    plain = msgspec.json.decode(msgspec.json.encode(spec))
    return podman_run(spec_of({**MEMBER, "spec": {**plain, "pids": 100}}), PATHS)


# --- a permission that is lost while the task waits ------------------------------------------


def test_a_task_whose_owner_lost_the_volume_fails_with_its_name(
    attempt: Attempt, node: ScriptedNode, root: User, volumes: dict[str, Volume], bob: User
) -> None:
    change_content(volumes=["data"])
    give(root, volumes["data"], bob)

    launch(attempt, node)

    assert node.requests == []
    assert states_of(attempt) == ("exited", "finished", "failed")
    assert attempt.detail == "Volume data is gone, or the owner of the task may not mount it."
    assert Task.objects.get().state_detail == attempt.detail


def test_a_task_whose_owner_left_the_group_fails_with_the_name_of_the_volume(
    attempt: Attempt, node: ScriptedNode, root: User, volumes: dict[str, Volume], alice: User
) -> None:
    change_content(volumes=["data"])
    team = Group.objects.create(name="readers")
    group_members_add(actor=root, group=team, users=[alice])
    give(root, volumes["data"], team)
    group_members_remove(actor=root, group=team, users=[alice])

    launch(attempt, node)

    assert (node.requests, states_of(attempt)[2]) == ([], "failed")
    assert "Volume data" in attempt.detail


def test_a_task_whose_owner_was_deactivated_fails_and_lets_go_of_its_devices(
    attempt: Attempt, node: ScriptedNode, root: User, volumes: dict[str, Volume], alice: User
) -> None:
    change_content(volumes=["data"])
    give(root, volumes["data"], alice)
    person_deactivate(actor=root, user=alice)

    launch(attempt, node)

    assert (node.requests, states_of(attempt)) == ([], ("exited", "finished", "failed"))
    assert "Volume data" in attempt.detail
    assert not HeldDevice.objects.filter(released_at__isnull=True).exists()


def test_a_removed_volume_is_missed_and_not_left_out(
    attempt: Attempt, node: ScriptedNode, root: User, volumes: dict[str, Volume]
) -> None:
    change_content(volumes=["data", "scratch"])
    volume_remove(actor=root, volume=volumes["scratch"])

    launch(attempt, node)

    assert (node.requests, states_of(attempt)[2]) == ([], "failed")
    assert "Volume scratch" in attempt.detail


def test_a_level_that_reads_mounts_read_only_and_keeps_no_checkpoints(
    attempt: Attempt, node: ScriptedNode, root: User, volumes: dict[str, Volume], alice: User
) -> None:
    change_content(volumes=["data", "scratch"])
    give(root, volumes["data"], alice, Level.READ)
    give(root, volumes["scratch"], alice)
    node.answers = [done(state="present", progress=""), done(state="running")]

    launch(attempt, node)

    (spec,) = node.specs()
    assert {one["target"]: one["read_only"] for one in spec["volumes"]} == {
        "/volumes/data": True,
        "/volumes/scratch": False,
    }


def test_checkpoints_need_a_volume_that_the_owner_may_write_to(
    attempt: Attempt, node: ScriptedNode, root: User, volumes: dict[str, Volume], alice: User
) -> None:
    change_content(checkpoint_volume="data")
    give(root, volumes["data"], alice, Level.READ)

    launch(attempt, node)

    assert states_of(attempt)[2] == "failed"
    assert "may only read volume data" in attempt.detail


def test_a_restricted_volume_stays_closed_when_its_rules_go(
    root: User, volumes: dict[str, Volume], alice: User, example: Example
) -> None:
    team = Group.objects.create(name="readers")
    give(root, volumes["data"], team)
    give(root, volumes["scratch"], team)
    rule_remove(actor=root, target=about(volumes["scratch"]), level=Level.MODIFY)

    team.delete()

    for name in NAMES:
        spec = TaskSpec(name="t", queue=example.dev_queue.name, command=["x"], volumes=[name])
        with pytest.raises(BadInput, match="this queue allows: none"):
            task_submit(actor=alice, spec=spec)


# --- what a service account wrote for an administrator ---------------------------------------


@pytest.fixture
def restricted(root: User, dev_group: Group, volumes: dict[str, Volume], alice: User) -> Volume:
    """A volume that a rule opens to another than the administrator, who is of the group."""
    root.groups.add(dev_group)
    give(root, volumes["data"], alice)
    return volumes["data"]


def acting(owner: User, account: User, act: Callable[[User], Task]) -> Task:
    """The task, read again, that the account stored in the owner's name."""

    def call() -> Task:
        acts_for(owner.pk, service_id=account.pk)
        acted = User.objects.get(pk=owner.pk)
        acted.acted_by_id = account.pk
        return act(acted)

    return Task.objects.get(pk=copy_context().run(call).pk)


def wanted(**fields: object) -> TaskSpec:
    return TaskSpec(name="t", image="registry/train:1", command=["x"], **fields)  # type: ignore[arg-type]  # the spec checks each field


def test_nobody_runs_again_with_that_role_what_an_account_wrote(
    root: User, restricted: Volume, bob: User, charlie: User, example: Example
) -> None:
    volume_change(actor=root, volume=restricted, values={"is_restricted": False})
    queue = Target(RuleKind.QUEUE, str(example.dev_queue.pk))
    rule_grant(actor=root, target=queue, level=Level.MANAGE, subjects=RuleSubjects((bob,)))
    spec = wanted(queue=example.dev_queue.name, volumes=["data"])
    ended = acting(root, charlie, lambda owner: task_submit(actor=owner, spec=spec))
    Task.objects.filter(pk=ended.pk).update(state="aborted")
    volume_change(actor=root, volume=restricted, values={"is_restricted": True})

    for actor in (bob, root):
        with pytest.raises(BadInput, match="'data', but this queue allows: scratch"):
            task_run_again(actor=User.objects.get(pk=actor.pk), task=Task.objects.get(pk=ended.pk))


def test_nor_enqueues_a_draft_that_an_account_changed(
    root: User, restricted: Volume, charlie: User, example: Example
) -> None:
    administrator = User.objects.get(pk=root.pk)
    own, other = (
        task_create(actor=administrator, spec=wanted(volumes=[restricted.name])) for _ in range(2)
    )
    changes = {"command": ["other"]}
    changed = acting(
        root, charlie, lambda owner: task_change(actor=owner, task=other, changes=changes)
    )

    task_enqueue(actor=administrator, task=own, queue=example.dev_queue.name)
    with pytest.raises(BadInput, match="'data', but this queue allows: scratch"):
        task_enqueue(actor=administrator, task=changed, queue=example.dev_queue.name)
