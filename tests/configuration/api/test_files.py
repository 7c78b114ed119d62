"""Configuration files through REST: export, diff, apply."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from django.conf import settings
from django.contrib.auth.models import Group
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from rest_framework.test import APIClient

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import draft_changes, draft_document, live_document
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_change
from apps.configuration.services.provision import document_provision
from apps.configuration.services.rules import RuleSubjects, rule_grant
from apps.events.models import AuditEntry, Event
from apps.policies.document import as_data, parse
from apps.policies.models import LiveState, Pool, Profile, Queue
from tests.configuration.api.common import SignIn
from tests.configuration.api.configuration_files import FILE, WHOLE, send, sentences
from tests.people import Example
from tests.policies.documents import documents

pytestmark = pytest.mark.django_db


def test_a_file_makes_everything_in_one_revision(
    admin: APIClient, example: Example, alice: User
) -> None:
    before = Revision.objects.count()

    answer = send(admin, "apply", WHOLE, note="From the repository.")

    assert sentences(answer) == [
        "pool Cloud added",
        "profile Small added",
        "policy Vision added",
        "queue vision-small added",
        "group vision added",
        "rule read on policy Vision added",
    ]
    assert Revision.objects.count() == before + 1
    newest = Revision.objects.latest("number")
    assert answer.json()["revision"] == newest.number
    assert newest.note == "From the repository."
    assert newest.document == as_data(live_document())
    queue = Queue.objects.get(name="vision-small")
    assert (queue.policy.name, queue.max_priority) == ("Vision", 3)
    assert Pool.objects.get(name="Cloud").dedicated_to == queue.policy
    assert draft_changes() == []


def test_the_audit_log_has_each_change_with_its_values(
    admin: APIClient, example: Example, root: User
) -> None:
    send(admin, "apply", "policies: [{name: Dev, weight: 3}]\nqueuing_order: [Research]")

    wanted = ["policy.changed", "queue.reordered"]
    entries = AuditEntry.objects.filter(verb__in=wanted).order_by("-id")[:2]
    ordered, changed = entries
    assert (changed.before, changed.after) == ({"weight": 1}, {"weight": 3})
    assert ordered.after == {"order": ["research-4xgpu", "dev-4xgpu"]}
    assert {entry.actor for entry in entries} == {"root"}
    number = Revision.objects.latest("number").number
    assert {entry.details["revision"] for entry in entries} == {number}


def test_a_second_time_changes_nothing_and_makes_no_revision(
    admin: APIClient, example: Example, alice: User
) -> None:
    send(admin, "apply", WHOLE)
    revisions, events = Revision.objects.count(), Event.objects.count()
    version = LiveState.objects.get().version

    answer = send(admin, "apply", WHOLE)

    assert sentences(answer) == []
    assert not answer.json()["is_changed"]
    assert (Revision.objects.count(), Event.objects.count()) == (revisions, events)
    assert LiveState.objects.get().version == version


def test_what_a_file_does_not_name_stays(admin: APIClient, example: Example) -> None:
    before = as_data(live_document())

    answer = send(admin, "apply", "policies: [{name: dev, limit: {gpu: 12}, weight: 3}]")

    assert sentences(answer) == [
        "policy dev: name changed",
        "policy dev: limit changed",
        "policy dev: weight changed",
    ]
    after = as_data(live_document())
    before["policies"][0] |= {"name": "dev", "limit": {"gpu": "12"}, "weight": 3}
    assert after == before


@pytest.mark.parametrize("path", ["export", ""])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_was_exported_changes_nothing(
    admin: APIClient, example: Example, alice: User, path: str, form: str
) -> None:
    send(admin, "apply", WHOLE)
    address = f"{FILE}/{path}/" if path else f"{FILE}/"
    text = admin.get(address, headers={"Accept": f"application/{form}"}).content.decode()

    answer = admin.generic("POST", f"{FILE}/apply/", text, content_type=f"application/{form}")

    assert sentences(answer) == []


@hypothesis_settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(documents())
def test_any_configuration_exported_and_applied_is_the_same(
    root: User, api_as: SignIn, raw: dict[str, Any]
) -> None:
    draft_write(document=parse(raw), actor=root)
    document_provision(actor=root)
    client = api_as(root)
    exported = client.get(f"{FILE}/export/")

    answer = send(client, "apply", yaml.safe_dump(exported.json()), prune="pools,profiles")

    assert sentences(answer) == []
    assert exported["ETag"] == f'"{answer.json()["revision"]}"'


def test_a_file_of_another_installation_is_joined_by_name(
    admin: APIClient, example: Example
) -> None:
    exported = admin.get(f"{FILE}/export/").json()
    for entry in (*exported["pools"], *exported["profiles"]):
        entry["key"] = str(uuid4())

    answer = send(admin, "apply", yaml.safe_dump(exported))

    assert "id" not in exported["policies"][0]
    assert sentences(answer) == []


def test_a_diff_shows_the_effect_and_keeps_nothing(admin: APIClient, example: Example) -> None:
    before = as_data(live_document()), Revision.objects.count(), Event.objects.count()

    answer = send(admin, "diff", "pools: [{name: Bare Metal Low END GPUs, capacity: 4}]")

    assert sentences(answer) == ["pool Bare Metal Low END GPUs: capacity changed"]
    assert [pool["pool"] for pool in answer.json()["preview"]["pools"]] == [
        "H100 Half a Superpod",
        "Bare Metal Low END GPUs",
    ]
    assert answer.json()["revision"] == before[1]
    assert (as_data(live_document()), Revision.objects.count(), Event.objects.count()) == before


def test_a_dry_run_keeps_nothing(admin: APIClient, example: Example) -> None:
    before = as_data(live_document()), Revision.objects.count(), Group.objects.count()

    answer = send(admin, "apply", WHOLE.replace("alice", "root"), dry_run="true")

    assert len(sentences(answer)) == 6
    assert answer.json()["revision"] == before[1]
    assert (as_data(live_document()), Revision.objects.count(), Group.objects.count()) == before
    assert send(admin, "apply", WHOLE, dry_run="perhaps").status_code == 400


def test_a_later_revision_is_named_with_who_made_it(
    admin: APIClient, example: Example, root: User
) -> None:
    known = Revision.objects.latest("number").number
    policy_change(actor=root, policy=example.dev, changes={"weight": 2})

    answer = send(admin, "apply", "settings: {queueing: strict}", revision=known)

    assert answer.status_code == 412
    assert "root: Policy Dev changed: weight. (revision" in answer.json()["detail"]
    assert live_document().settings.queueing == "best_effort"
    applied = send(admin, "apply", "settings: {queueing: strict}", revision=known + 1).json()
    assert applied.pop("version")
    assert applied == {
        "revision": known + 2,
        "is_changed": True,
        "changes": [
            {
                "kind": "settings",
                "name": "",
                "what": "changed",
                "field": "queueing",
                "before": "best_effort",
                "after": "strict",
                "sentence": "setting queueing: best_effort to strict",
            }
        ],
    }


def test_a_draft_that_waits_is_neither_provisioned_nor_lost(
    admin: APIClient, example: Example, root: User
) -> None:
    data = as_data(draft_document())
    data["pools"][0]["capacity"] = {"gpu": "32"}
    draft_write(document=parse(data), actor=root)

    answer = send(admin, "apply", "settings: {queueing: strict}")
    policy = send(admin, "apply", "policies: [{name: Dev, weight: 4}]")

    assert answer.status_code == 409
    assert "pool H100 Half a Superpod: capacity changed. root saved" in answer.json()["detail"]
    assert draft_document().pools[0].capacity == {"gpu": "32"}
    assert policy.status_code == 200


def test_one_policy_comes_first_in_every_profile(admin: APIClient, example: Example) -> None:
    text = "queuing_order: [Research]"

    answer = send(admin, "apply", text)

    assert sentences(answer) == ["profile 4xGPU: queues changed"]
    assert live_document().profiles[0].queues == ("research-4xgpu", "dev-4xgpu")
    assert draft_document().profiles[0].queues == ("research-4xgpu", "dev-4xgpu")
    assert sentences(send(admin, "apply", text)) == []


def test_what_a_file_removes_is_gone_and_removing_again_is_nothing(
    admin: APIClient, example: Example, alice: User
) -> None:
    send(admin, "apply", WHOLE)
    text = """
remove:
  pools: [Cloud]
  profiles: [Small]
  policies: [Vision]
  rules: [{kind: policy, name: Vision, level: read}]
"""

    first, second = send(admin, "apply", text), send(admin, "apply", text)

    assert sentences(first) == [
        "pool Cloud removed",
        "profile Small removed",
        "policy Vision removed",
        "queue vision-small removed",
    ]
    assert sentences(second) == []


def test_a_queue_is_removed_however_its_name_is_spelt(
    admin: APIClient, example: Example, alice: User
) -> None:
    send(admin, "apply", WHOLE)

    answer = send(admin, "apply", "remove: {queues: [VISION-small]}")

    assert "queue vision-small removed" in sentences(answer)


def test_pruning_removes_what_the_file_leaves_out(admin: APIClient, example: Example) -> None:
    text = "profiles: [{name: 4xGPU}, {name: 2xGPU}]"

    kept = send(admin, "apply", text)
    gone = send(admin, "apply", text, prune="profiles")

    assert sentences(kept) == []
    assert sentences(gone) == ["profile 8xGPU removed", "profile 0.5xGPU removed"]
    refused = send(admin, "apply", text, prune="pools")
    assert refused.json()["fields"] == {"prune": "names pools, which the file does not have"}
    assert send(admin, "apply", text, prune="people").status_code == 400


def test_pruned_queues_are_those_of_policies_that_list_theirs(
    admin: APIClient, example: Example
) -> None:
    answer = send(admin, "apply", "policies: [{name: Dev, queues: []}]", prune="queues")

    assert sentences(answer) == [
        "profile 4xGPU: queues changed",
        "queue dev-4xgpu removed",
    ]


def test_rules_have_exactly_the_subjects_of_the_file(
    admin: APIClient, example: Example, root: User, alice: User, bob: User
) -> None:
    target = Target(RuleKind.POLICY, str(example.research.pk), "Research")
    for level, subject in ((Level.READ, alice), (Level.MODIFY, bob)):
        rule_grant(actor=root, target=target, level=level, subjects=RuleSubjects((subject,)))
    text = """
rules:
  - {kind: policy, name: Research, level: read, users: [bob], groups: [dev]}
  - {kind: policy, name: Research, level: modify, users: [alice]}
"""

    first, second = send(admin, "apply", text), send(admin, "apply", text)
    rules = admin.get(f"{FILE}/export/").json()["rules"]
    pruned = send(admin, "apply", "rules: []", prune="rules")

    assert sentences(first) == [
        "rule read on policy Research: subjects changed",
        "rule modify on policy Research added",
    ]
    assert sentences(second) == []
    assert [(one["level"], one["users"], one["groups"]) for one in rules] == [
        ("modify", ["alice"], []),
        ("read", ["bob"], ["dev"]),
    ]
    assert sentences(pruned) == [
        "rule modify on policy Research removed",
        "rule read on policy Research removed",
    ]


def test_a_renamed_profile_keeps_its_queues(admin: APIClient, example: Example) -> None:
    key = str(Profile.objects.get(name="4xGPU").key)

    answer = send(admin, "apply", f"profiles: [{{key: '{key}', name: Four GPUs}}]")

    assert "profile Four GPUs: name changed" in sentences(answer)
    assert Queue.objects.get(name="dev-4xgpu").profile.name == "Four GPUs"
    assert [pool.profiles[1] for pool in live_document().pools[:1]] == ["Four GPUs"]


def test_the_example_of_the_documentation_is_applied(
    admin: APIClient, example: Example, alice: User
) -> None:
    page = (Path(settings.BASE_DIR) / "docs" / "configuring.md").read_text()
    text = page.partition("<!-- a test applies this file -->\n```yaml\n")[2].partition("```")[0]

    answer = send(admin, "apply", text, note="docs")

    assert "policy Vision added" in sentences(answer)
    assert sentences(send(admin, "apply", text)) == []
