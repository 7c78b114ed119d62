"""The pages of access rules: who sees them, what they change, and what they explain."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.access.levels import RESOURCES, Level, RuleKind
from apps.access.rules.rule import Target
from apps.access.selectors import queues_managed_by, queues_open_to, queues_visible_to
from apps.accounts.models import User
from apps.configuration.services.restrictions import policy_restrict
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.dashboard.forms_access import PERMITTED
from apps.nodes.services import volume_create
from apps.policies.models import Policy, PolicyMember
from apps.tasks.models import Task
from tests.dashboard.conftest import ClientFor, Submit
from tests.dashboard.page_reader import text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db
LIST = "/settings/access/"


def value(page: Any, name: str) -> str:
    """What a hidden field carries."""
    found = re.search(rf'name="{name}" value="(\w+)"', page.content.decode())
    assert found is not None
    return found[1]


def hidden(client: Client, path: str, name: str) -> str:
    return value(client.get(path), name)


def on(row: Policy) -> Target:
    return Target(RuleKind.POLICY, str(row.pk), row.name)


def test_the_table_shows_what_policies_give_by_themselves(
    example: Example, root: User, client_for: ClientFor
) -> None:
    page = text(client_for(root).get(LIST))

    assert "Policy Dev Read and modify dev Policy Dev Restrict… Dev" in page
    assert "Policy Research Read and modify research" in page


def test_a_rule_is_made_changed_and_removed_as_one(
    example: Example, root: User, charlie: User, bob: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    made = client.post(
        f"{LIST}new/",
        {"target": f"policy.{example.dev.pk}", "level": "read", "users": "charlie, bob"},
    )
    key = f"policy.{example.dev.pk}.read.person"
    page = client.get(f"{LIST}rules/{key}/edit/").content.decode()
    found = re.search(r'name="version" value="(\w+)"', page)
    assert found is not None
    changed = client.post(
        f"{LIST}rules/{key}/edit/",
        {"level": "manage", "users": "charlie", "version": found[1]},
    )

    assert (made.status_code, changed.status_code) == (302, 302)
    assert queues_managed_by(charlie).get() == example.dev_queue
    assert not queues_managed_by(bob).exists()
    key = key.replace("read", "manage")
    assert "charlie" in text(client.get(f"{LIST}rules/{key}/remove/"))
    version = hidden(client, f"{LIST}rules/{key}/remove/", "version")
    client.post(f"{LIST}rules/{key}/remove/", {"version": version})
    assert not queues_visible_to(charlie).filter(pk=example.dev_queue.pk).exists()
    assert client.get(f"{LIST}rules/{key}/edit/").status_code == 404


def test_two_administrators_do_not_overwrite_each_other(
    example: Example, root: User, charlie: User, bob: User, client_for: ClientFor
) -> None:
    target = on(example.dev)
    rule = rule_grant(
        actor=root, target=target, level=Level.READ, subjects=RuleSubjects(users=(charlie,))
    )
    rule_grant(actor=root, target=target, level=Level.READ, subjects=RuleSubjects(users=(bob,)))

    answer = client_for(root).post(
        f"{LIST}rules/{rule.key}/edit/",
        {"level": "read", "users": "alice", "version": rule.version},
    )

    assert answer.status_code == 400
    assert queues_visible_to(charlie).filter(pk=example.dev_queue.pk).exists()


def test_a_rule_that_became_another_is_not_removed_unseen(
    example: Example, root: User, charlie: User, bob: User, client_for: ClientFor
) -> None:
    client, target = client_for(root), on(example.dev)
    rule = rule_grant(
        actor=root, target=target, level=Level.READ, subjects=RuleSubjects(users=(charlie,))
    )
    path = f"{LIST}rules/{rule.key}/remove/"
    version = hidden(client, path, "version")
    rule_grant(actor=root, target=target, level=Level.READ, subjects=RuleSubjects(users=(bob,)))

    answer = client.post(path, {"version": version})

    assert answer.status_code == 400
    assert "Another user has changed this rule meanwhile" in text(answer)
    assert "bob" in text(answer)
    assert queues_visible_to(charlie).filter(pk=example.dev_queue.pk).exists()


def test_the_dialogs_of_a_rule_say_what_it_permits(
    example: Example, alice: User, bob: User, client_for: ClientFor, submit: Submit
) -> None:
    client, task = client_for(alice), submit(alice, "train")
    target, subjects = Target(RuleKind.TASK, str(task.pk), "train"), RuleSubjects(users=(bob,))
    rule = rule_grant(actor=alice, target=target, level=Level.READ, subjects=subjects)

    made = text(client.get(f"{LIST}new/?target=task.{task.pk}"))
    removed = text(client.get(f"{LIST}rules/{rule.key}/remove/"))

    assert "Read: read the task and its log." in made
    assert "1 person or group can no longer read the task and its log" in removed
    assert "waiting tasks" not in removed


@pytest.mark.parametrize("kind", RuleKind)
def test_every_rule_says_what_it_permits(kind: RuleKind) -> None:
    assert set(PERMITTED[kind]) == set(RESOURCES[kind].verbs)


def test_the_dialogs_of_a_rule_on_a_volume_say_what_it_permits(
    root: User, bob: User, client_for: ClientFor
) -> None:
    volume = volume_create(actor=root, values={"name": "data", "path": "/srv/data"})
    target = Target(RuleKind.VOLUME, str(volume.pk), "data")
    rule = rule_grant(
        actor=root, target=target, level=Level.READ, subjects=RuleSubjects(users=(bob,))
    )
    client = client_for(root)

    changed = text(client.get(f"{LIST}rules/{rule.key}/edit/"))
    removed = text(client.get(f"{LIST}rules/{rule.key}/remove/"))

    assert "Read and modify: mount the volume in their tasks as it is" in changed
    assert "1 person or group can no longer mount the volume in their tasks, read-only" in removed
    assert client.get(f"{LIST}new/?target=volume.{volume.pk}").status_code == 200


def test_who_restricts_sees_whom_they_may_name_and_the_members(
    example: Example, root: User, alice: User, bob: User, charlie: User, client_for: ClientFor
) -> None:
    rule_grant(
        actor=root,
        target=on(example.dev),
        level=Level.MANAGE,
        subjects=RuleSubjects(users=(charlie,)),
    )
    policy_restrict(actor=root, policy=example.dev, people=[bob])
    client, path = client_for(charlie), f"/policies/{example.dev.pk}/restrict/"
    rest = f"/api/v1/policies/{example.dev.pk}/restriction/"

    page = text(client.get(path))
    given = {"reach": "restricted", "version": hidden(client, path, "version")}
    strange = client.post(path, {**given, "people": [alice.pk, bob.pk]})
    body = {"is_restricted": True, "people": ["alice", "bob"]}
    over_rest = client.put(rest, body, content_type="application/json", headers={"If-Match": "*"})
    bob.groups.clear()
    gone = text(client.get(path))
    kept = client.post(path, given)

    assert "bob" in page
    assert words_on(page, "alice") == []
    assert words_on(gone, "bob") == []
    assert (strange.status_code, over_rest.status_code, kept.status_code) == (400, 400, 302)
    assert PolicyMember.objects.get().user == bob


def test_bad_input_stands_at_its_field(example: Example, root: User, client_for: ClientFor) -> None:
    client = client_for(root)
    target = f"policy.{example.dev.pk}"

    nobody = client.post(f"{LIST}new/", {"target": target, "level": "read", "users": "zoe"})
    empty = client.post(f"{LIST}new/", {"target": target, "level": "read"})
    pool = {"target": f"pool.{example.h100.pk}", "level": "manage", "users": "root"}
    level = client.post(f"{LIST}new/", pool)

    assert "There is nobody called zoe" in text(nobody)
    assert "Name a user or a group" in text(empty)
    assert "A pool has read" in text(level)
    assert {one.status_code for one in (nobody, empty, level)} == {400}


def test_filters_by_resource_target_and_subject(
    example: Example, root: User, charlie: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    rule_grant(
        actor=root,
        target=on(example.dev),
        level=Level.READ,
        subjects=RuleSubjects(users=(charlie,)),
    )
    kind = Target(RuleKind.QUEUE)
    rule_grant(actor=root, target=kind, level=Level.READ, subjects=RuleSubjects(users=(charlie,)))

    by_kind = text(client.get(f"{LIST}?kind=queue"))
    by_name = text(client.get(f"{LIST}?name=search"))
    by_subject = text(client.get(f"{LIST}?subject=charlie"))
    by_level = text(client.get(f"{LIST}?level=modify"))

    assert "Queue Every one Read charlie" in by_kind
    assert "Policy Dev Read" not in by_kind
    assert "Policy Research Read and modify research" in by_name
    assert "Policy Dev Read charlie" not in by_name
    assert "Policy Dev Read charlie" in by_subject
    assert "Read and modify dev" not in by_subject
    assert "Policy Dev Read and modify dev" in by_level
    assert "Policy Dev Read charlie" not in by_level
    assert "No rule matches" in text(client.get(f"{LIST}?subject=nobody"))


def test_who_manages_nothing_has_no_such_page(
    example: Example, alice: User, charlie: User, client_for: ClientFor
) -> None:
    key = f"policy.{example.dev.pk}.read.person"
    for user in (alice, charlie):
        client = client_for(user)
        for path in ("", "new/", f"rules/{key}/edit/", f"rules/{key}/remove/"):
            assert client.get(f"{LIST}{path}").status_code == 404
        assert client.get(f"/policies/{example.dev.pk}/restrict/").status_code == 404
        assert words_on(text(client.get("/settings/account/")), "Access") == []


def test_who_manages_a_policy_gives_what_they_hold_to_whom_they_may_name(
    example: Example, root: User, alice: User, bob: User, charlie: User, client_for: ClientFor
) -> None:
    rule_grant(
        actor=root,
        target=on(example.dev),
        level=Level.MANAGE,
        subjects=RuleSubjects(users=(alice,)),
    )
    client = client_for(alice)
    target = f"policy.{example.dev.pk}"

    page = text(client.get(LIST))
    given = client.post(f"{LIST}new/", {"target": target, "level": "manage", "users": "bob"})
    strange = client.post(f"{LIST}new/", {"target": target, "level": "read", "users": "charlie"})
    missing = client.post(f"{LIST}new/", {"target": target, "level": "read", "users": "nobody"})
    limit = client.post(f"{LIST}new/", {"target": target, "level": "exceed", "users": "bob"})
    research = client.post(
        f"{LIST}new/", {"target": f"policy.{example.research.pk}", "level": "read", "users": "bob"}
    )

    assert "Policy Dev Manage alice" in page
    assert words_on(page, "Research") == []
    assert given.status_code == 302
    assert queues_managed_by(bob).get() == example.dev_queue
    assert "There is nobody called charlie" in text(strange)
    assert "There is nobody called nobody" in text(missing)
    assert limit.status_code == research.status_code == 400


def test_a_policy_is_restricted_in_two_steps_where_tasks_would_become_drafts(
    example: Example, root: User, alice: User, bob: User, submit: Submit, client_for: ClientFor
) -> None:
    waiting = submit(bob, "bobs")
    client = client_for(root)
    path = f"/policies/{example.dev.pk}/restrict/"
    version = hidden(client, path, "version")
    given = {"reach": "restricted", "people": [alice.pk], "version": version}

    asked = client.post(path, given)
    seen = {"confirmed": value(asked, "confirmed")}
    other = client.post(path, {**given, **seen, "people": []})

    assert "1 waiting task becomes a draft" in text(asked)
    assert "1 waiting task becomes a draft" in text(other)
    assert queues_open_to(bob).exists()
    assert client.post(path, {**given, **seen}).status_code == 302
    assert queues_open_to(alice).get() == example.dev_queue
    assert not queues_visible_to(bob).exists()
    assert Task.objects.get(pk=waiting.pk).state == "draft"
    shown = text(client.get(f"{LIST}?kind=policy&name=Dev"))
    assert "Policy Dev Read and modify alice Policy Dev Restricted" in shown
    page = text(client.get(f"/policies/{example.dev.pk}/"))
    assert "1 person in dev" in page
    assert "Restricted" in page
    late = client.post(path, {"reach": "whole", "version": version})
    assert late.status_code == 400
    assert "meanwhile" in text(late)
    client.post(path, {"reach": "whole", "version": hidden(client, path, "version")})
    assert queues_open_to(bob).get() == example.dev_queue


def test_a_page_explains_each_permission(
    example: Example, root: User, alice: User, charlie: User, client_for: ClientFor
) -> None:
    rule_grant(
        actor=root,
        target=on(example.dev),
        level=Level.MANAGE,
        subjects=RuleSubjects(groups=(Group.objects.get(name="research"),)),
    )
    path = f"{LIST}explain/"
    about = f"kind=queue&object={example.dev_queue.name}"

    shown = text(client_for(root).get(f"{path}?user=charlie&{about}"))
    own = text(client_for(charlie).get(f"{path}?{about}"))
    strange = text(client_for(alice).get(f"{path}?user=charlie&{about}"))
    nobody = text(client_for(root).get(f"{path}?user=nobody&{about}"))
    nothing = text(client_for(root).get(f"{path}?user=charlie&kind=policy&object=No"))

    sentence = "Manage it yes A rule on policy Dev for group research, made by root."
    assert sentence in shown
    assert sentence in own
    assert "that you may ask about" in strange
    assert words_on(strange, "research") == []
    assert "There is no person with this name that you may ask about." in nobody
    assert "There is no policy with this name or id that you may ask about." in nothing


def test_the_list_takes_a_fixed_number_of_queries(
    example: Example, root: User, alice: User, charlie: User, client_for: ClientFor
) -> None:
    subjects = RuleSubjects(users=(charlie,))
    rule_grant(actor=root, target=on(example.dev), level=Level.READ, subjects=subjects)
    rule_grant(
        actor=root,
        target=on(example.dev),
        level=Level.MANAGE,
        subjects=RuleSubjects(users=(alice,)),
    )
    counts = []
    for turn in range(2):
        for user in (root, alice):
            client = client_for(user)
            client.get(LIST)
            with CaptureQueriesContext(connection) as captured:
                client.get(LIST)
            counts.append(len(captured))
        people = [User(username=f"p{turn}-{n}", password="!") for n in range(30)]
        many = tuple(User.objects.bulk_create(people))
        for level, part in ((Level.READ, many[:10]), (Level.MODIFY, many[10:])):
            rule_grant(
                actor=root, target=on(example.dev), level=level, subjects=RuleSubjects(users=part)
            )

    assert counts[:2] == counts[2:]
    assert max(counts) <= 30
