"""Rules on volumes: who may mount one, who makes the rules, and who learns of the volume."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from rest_framework.test import APIClient

from apps.access.levels import Level, RuleKind
from apps.access.permissions import holders, may, permission_sources
from apps.access.rules.rule import RuleFilter, Target
from apps.access.rules.selectors import rules_visible_to, sees_rules
from apps.accounts.models import User
from apps.accounts.selectors import people_managed_by
from apps.accounts.services.people_changes import person_deactivate
from apps.configuration.group_usage import group_counts, group_usage
from apps.configuration.services.queues import profile_connect
from apps.configuration.services.rules import RuleSubjects, rule_grant, rule_remove
from apps.core.errors import BadInput, NotFound
from apps.events.models import AuditEntry
from apps.nodes.models import Volume, VolumeGroupPermission, VolumeUserPermission
from apps.nodes.selectors import volumes_mountable_by
from apps.nodes.services import volume_create, volume_remove
from apps.policies.models import Profile
from apps.tasks.models import Task
from apps.tasks.services.enqueue.bulk import tasks_enqueue_many
from apps.tasks.services.enqueue.submission import (
    task_create,
    task_enqueue,
    task_run_again,
    task_submit,
)
from apps.tasks.services.queue_order import task_change_queue, task_set_priority
from apps.tasks.task_spec import TaskSpec
from tests.configuration.site import url
from tests.people import Example
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db
As = Callable[[User], APIClient]
RULES, EXPLAIN = "/api/v1/access-rules/", "/api/v1/access/explain/"
UNKNOWN = "volumes names 'data', but this queue allows: scratch."


@pytest.fixture
def data(root: User, example: Example) -> Volume:
    """One of two volumes that every profile allows."""
    Profile.objects.update(volumes=["data", "scratch"])
    volume_create(actor=root, values={"name": "scratch", "path": "/srv/scratch"})
    return volume_create(actor=root, values={"name": "data", "path": "/srv/data"})


def about(volume: Volume) -> Target:
    return Target(RuleKind.VOLUME, str(volume.pk), volume.name)


def give(root: User, volume: Volume, *subjects: User | Group, level: Level = Level.READ) -> None:
    named = RuleSubjects(
        tuple(one for one in subjects if isinstance(one, User)),
        tuple(one for one in subjects if isinstance(one, Group)),
    )
    rule_grant(actor=root, target=about(volume), level=level, subjects=named)


def spec(example: Example, **fields: Any) -> TaskSpec:
    return TaskSpec(
        name="t",
        **{"queue": example.dev_queue.name, "command": ["x"], "volumes": ["data"]} | fields,
    )


# --- who may mount it ------------------------------------------------------------------------


def test_a_volume_without_rules_is_open_and_with_one_to_its_subjects_alone(
    data: Volume, root: User, alice: User, bob: User, example: Example
) -> None:
    task_submit(actor=bob, spec=spec(example))

    give(root, data, alice)

    task_submit(actor=alice, spec=spec(example))
    with pytest.raises(BadInput, match=UNKNOWN):
        task_submit(actor=bob, spec=spec(example))
    assert (Volume.objects.get(pk=data.pk).is_restricted, volumes_mountable_by(root, ["data"])) == (
        True,
        {"data": True},
    )


def test_a_restricted_volume_reads_like_one_that_does_not_exist(
    data: Volume, root: User, alice: User, bob: User, example: Example
) -> None:
    give(root, data, alice)

    problems = []
    for name in ("data", "nope"):
        with pytest.raises(BadInput) as caught:
            task_submit(actor=bob, spec=spec(example, volumes=[name], checkpoint_volume=name))
        problems.append(str(caught.value.fields).replace(name, "it"))

    assert problems[0] == problems[1]


def test_checkpoints_need_the_level_that_modifies(
    data: Volume, root: User, alice: User, example: Example
) -> None:
    give(root, data, alice)

    with pytest.raises(BadInput) as caught:
        task_submit(actor=alice, spec=spec(example, checkpoint_volume="data"))

    assert caught.value.fields == {
        "checkpoint_volume": "names 'data', which the owner may only read"
    }
    give(root, data, alice, level=Level.MODIFY)
    task_submit(actor=alice, spec=spec(example, checkpoint_volume="data"))


def test_what_counts_is_the_owner_whoever_enqueues(
    data: Volume, root: User, alice: User, bob: User, example: Example
) -> None:
    give(root, data, alice)
    draft = task_create(actor=bob, spec=spec(example, queue=None))
    hers = task_create(actor=alice, spec=spec(example, queue=None))

    with pytest.raises(BadInput, match=UNKNOWN):
        task_enqueue(actor=root, task=draft, queue=example.dev_queue.name)
    task_enqueue(actor=root, task=hers, queue=example.dev_queue.name)


def test_managers_learn_of_no_volume_that_they_may_not_mount(
    data: Volume, root: User, alice: User, bob: User, example: Example
) -> None:
    give(root, data, alice)
    queue = Target(RuleKind.QUEUE, str(example.dev_queue.pk))
    rule_grant(actor=root, target=queue, level=Level.MANAGE, subjects=RuleSubjects((bob,)))
    task = task_submit(actor=alice, spec=spec(example))
    Task.objects.update(content={**task.content, "volumes": ["nope"]})

    for actor, want in ((bob, "scratch"), (alice, "data, scratch")):
        with pytest.raises(BadInput, match=f"allows: {want}\\."):
            task_set_priority(actor=actor, task=Task.objects.get(), priority=0)


def test_each_way_into_a_queue_asks_the_rules_of_now(
    data: Volume, root: User, alice: User, bob: User, example: Example
) -> None:
    second = profile_connect(
        actor=root,
        policy=example.dev,
        profile=Profile.objects.get(name="2xGPU"),
        queue_name="second",
    )
    waiting, ended = (task_submit(actor=bob, spec=spec(example)) for _ in range(2))
    Task.objects.filter(pk=ended.pk).update(state="aborted")
    ended.refresh_from_db()
    draft = task_create(actor=bob, spec=spec(example, queue=None))
    give(root, data, alice)

    tries: list[Callable[[], object]] = [
        lambda: task_submit(actor=bob, spec=spec(example)),
        lambda: task_enqueue(actor=bob, task=draft, queue=example.dev_queue.name),
        lambda: task_run_again(actor=bob, task=ended),
        lambda: task_change_queue(actor=bob, task=waiting, queue=second.name),
        lambda: task_set_priority(actor=bob, task=waiting, priority=0),
    ]
    for each in tries:
        with pytest.raises(BadInput, match=UNKNOWN):
            each()
    answers = tasks_enqueue_many(
        actor=bob,
        items=[spec(example), spec(example, volumes=["scratch"]), spec(example, volumes=[])],
    )
    assert [isinstance(one, Task) for one in answers] == [False, True, True]
    assert "scratch" in str(answers[0])


def test_a_deactivated_owner_mounts_what_everybody_may(
    data: Volume, root: User, alice: User, bob: User, example: Example, api_as: As
) -> None:
    give(root, data, bob, level=Level.MODIFY)
    task = task_submit(actor=bob, spec=spec(example))
    person_deactivate(actor=root, user=bob)

    owner = User.objects.get(pk=bob.pk)
    answer = api_as(root).post(f"/api/v1/tasks/{task.pk}/priority/", {"priority": 1}, format="json")

    assert volumes_mountable_by(owner, ["data", "scratch"]) == {"scratch": True}
    assert (answer.status_code, "volumes" in answer.json()["fields"]) == (400, True)


def test_a_service_account_mounts_nothing_by_the_role_of_the_administrator_it_acts_for(
    data: Volume, root: User, dev_group: Group, alice: User, example: Example
) -> None:
    give(root, data, alice)
    root.groups.add(dev_group)
    draft = task_create(actor=User.objects.get(pk=root.pk), spec=spec(example, queue=None))
    acted = User.objects.get(pk=root.pk)
    acted.acted_by_id = alice.pk

    with pytest.raises(BadInput, match=UNKNOWN):
        task_enqueue(actor=acted, task=draft, queue=example.dev_queue.name)


def test_a_task_without_volumes_asks_nothing_about_them(
    data: Volume, root: User, alice: User, example: Example, django_assert_num_queries: Any
) -> None:
    give(root, data, alice)

    with django_assert_num_queries(0):
        assert volumes_mountable_by(alice, []) == {}
    with django_assert_num_queries(1):
        assert volumes_mountable_by(alice, ["scratch"]) == {"scratch": True}
    with django_assert_num_queries(3):
        found = volumes_mountable_by(alice, ["data", "scratch"])
    assert found == {"data": False, "scratch": True}


def test_the_directions_agree_for_every_volume(
    data: Volume, root: User, alice: User, bob: User, charlie: User, dev_group: Group
) -> None:
    give(root, data, charlie)
    give(root, data, dev_group, level=Level.MODIFY)
    person_deactivate(actor=root, user=bob)

    for row in Volume.objects.all():
        for verb in ("view", "change"):
            people = set(holders(row, verb))
            for user in User.objects.all():
                codes = {one.code for one in permission_sources(user, verb, row)}
                is_held = may(user, verb, row)
                assert is_held == (user in people) == (not {"nothing", "deactivated"} & codes)
    assert may(charlie, "view", data)
    assert not may(charlie, "change", data)


# --- who makes rules, and what follows -------------------------------------------------------


def test_only_administrators_see_and_make_rules_on_volumes(
    data: Volume, root: User, alice: User, bob: User, organisations: Organisations, api_as: As
) -> None:
    give(root, data, alice, level=Level.MODIFY)
    key = f"{RULES}volume.{data.pk}.modify.person/"
    body = {"kind": "volume", "object": str(data.pk), "level": "read", "users": ["alice"]}

    for user in (alice, bob, organisations.acme.admin):
        client = api_as(user)
        assert client.get(key).status_code == 404
        assert client.post(RULES, body, format="json").status_code == 404
        assert not rules_visible_to(user, RuleFilter(RuleKind.VOLUME)).rules
        assert client.get(f"{EXPLAIN}?object=volume.{data.pk}").status_code == 404
    assert not sees_rules(alice)
    (rule,) = rules_visible_to(root, RuleFilter(RuleKind.VOLUME)).rules
    assert (rule.level, rule.makers) == (Level.MODIFY, ["root"])


def test_rest_makes_changes_and_removes_a_rule_and_opens_the_volume_again(
    data: Volume, root: User, alice: User, api_as: As
) -> None:
    client = api_as(root)
    body = {"kind": "volume", "object": str(data.pk), "level": "read", "users": ["alice"]}

    made = client.post(RULES, body, format="json")
    assert (made.status_code, made.json()["id"]) == (201, f"volume.{data.pk}.read.person")
    assert client.post(RULES, {**body, "object": "all"}, format="json").status_code == 404
    assert client.post(RULES, {**body, "level": "manage"}, format="json").status_code == 400
    path = f"{RULES}{made.json()['id']}/"
    changed = client.patch(
        path, {"level": "modify"}, format="json", HTTP_IF_MATCH=made.headers["ETag"]
    )
    assert changed.json()["level"] == "modify"
    assert client.delete(f"{RULES}{changed.json()['id']}/").status_code == 204

    volume = f"/api/v1/volumes/{data.pk}/"
    assert client.get(volume).json()["is_restricted"] is True
    assert volumes_mountable_by(alice, ["data"]) == {}
    assert client.patch(volume, {"is_restricted": False}, format="json").status_code == 200
    assert volumes_mountable_by(alice, ["data"]) == {"data": True}
    kinds = set(AuditEntry.objects.filter(object_type="volume").values_list("verb", flat=True))
    assert {"rule.granted", "rule.changed", "rule.removed", "volume.changed"} <= kinds


def test_rules_go_with_their_volume(data: Volume, root: User, alice: User, bob: User) -> None:
    give(root, data, alice, Group.objects.create(name="readers"))

    volume_remove(actor=root, volume=data)

    assert not VolumeUserPermission.objects.exists()
    assert not VolumeGroupPermission.objects.exists()
    with pytest.raises(NotFound):
        give(root, data, bob)
    with pytest.raises(NotFound):
        rule_remove(actor=root, target=about(data), level=Level.READ)


def test_groups_count_their_rules_on_volumes(
    data: Volume, root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    give(root, data, acme.group, level=Level.MODIFY)

    assert group_counts([acme.group.pk])[acme.group.pk].rules == 1
    (rule,) = group_usage(acme.group).made_by_people
    assert (rule.kind, rule.name, rule.permissions) == ("volume", "data", ("change", "view"))
    # Administrators of the tenant do not see the volume.
    assert group_counts([acme.group.pk], reader=acme.admin)[acme.group.pk].rules == 0
    assert not group_usage(acme.group, reader=acme.admin).made_by_people


def test_administrators_of_a_tenant_do_not_manage_people_whom_a_rule_on_a_volume_names(
    data: Volume, root: User, organisations: Organisations
) -> None:
    acme = organisations.acme
    assert acme.member in people_managed_by(acme.admin)

    give(root, data, acme.member)

    # With a link that sets a password they would mount it in that person's name.
    assert acme.member not in people_managed_by(acme.admin)


def test_the_explanation_names_the_rule_and_the_open_volume(
    data: Volume, root: User, alice: User, bob: User, api_as: As
) -> None:
    give(root, data, alice)
    client = api_as(root)

    def explained(name: str, user: User) -> dict[str, tuple[bool, list[str]]]:
        pk = Volume.objects.get(name=name).pk
        found = client.get(f"{EXPLAIN}?user={user.username}&object=volume.{pk}").json()
        return {
            one["permission"]: (one["is_held"], [why["text"] for why in one["reasons"]])
            for one in found["permissions"]
        }

    assert explained("data", alice) == {
        "mount": (True, ["A rule on volume data names them, made by root."]),
        "write": (False, ["No rule gives it."]),
    }
    open_words = ["The volume is not restricted: everybody may mount it."]
    assert explained("scratch", bob) == {"mount": (True, open_words), "write": (True, open_words)}


# --- who learns of it ------------------------------------------------------------------------


def test_profiles_show_the_volumes_that_their_reader_may_mount(
    data: Volume, root: User, alice: User, bob: User, example: Example, api_as: As
) -> None:
    give(root, data, alice)
    Profile.objects.update(volumes=["data", "scratch", "planned"])
    path = f"/api/v1/profiles/{example.dev_queue.profile_id}/"

    assert api_as(alice).get(path).json()["volumes"] == ["data", "scratch"]
    assert api_as(bob).get(path).json()["volumes"] == ["scratch"]
    for one in api_as(bob).get("/api/v1/profiles/").json()["results"]:
        assert one["volumes"] == ["scratch"]
    # Administrators see the profile as it is configured.
    assert api_as(root).get(path).json()["volumes"] == ["data", "scratch", "planned"]


def test_the_page_of_access_rules_makes_one_on_a_volume(
    data: Volume, root: User, alice: User
) -> None:
    client = Client()
    client.force_login(root)
    made = client.post(
        "/settings/access/new/",
        {"target": f"volume.{data.pk}", "level": "modify", "users": "alice"},
    )

    assert made.status_code == 302
    shown = client.get("/settings/access/?kind=volume").content.decode()
    assert url(Volume, "change", data.pk) in shown
    assert "Read and modify" in shown
    # From the volume on the admin site one comes to its rules.
    volume = client.get(url(Volume, "change", data.pk)).content.decode()
    assert f"/settings/access/?kind=volume&amp;object={data.pk}" in volume
