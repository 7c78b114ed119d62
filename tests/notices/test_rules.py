"""Rules by REST, and the list of notices."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.configuration.services.rules import RuleSubjects, rule_grant, rule_remove
from apps.events.models import AuditEntry
from apps.notices.models import Notice, NoticeRule
from apps.notices.services import rules
from apps.notices.services.rules import notice_rule_create
from apps.policies.models import Queue
from tests.notices.conftest import Happen, Submit, notices_make
from tests.people import Example

pytestmark = pytest.mark.django_db
ApiAs = Callable[[User], APIClient]
RULES, NOTICES = "/api/v1/notice-rules/", "/api/v1/notices/"


def test_a_rule_is_added_changed_and_removed(api_as: ApiAs, alice: User) -> None:
    api = api_as(alice)
    body = {"scope": "own", "kinds": ["waiting", "failed"], "wait_minutes": 30}

    made = api.post(RULES, body)
    address = f"{RULES}{made.data['id']}/"
    changed = api.patch(address, {"kinds": ["ended"]})
    listed = api.get(RULES)

    assert made.status_code == 201
    assert (made.data["kinds"], made.data["wait_minutes"]) == (["failed", "waiting"], 30)
    assert (changed.data["kinds"], changed.data["wait_minutes"]) == (["ended"], None)
    assert [one["id"] for one in listed.data["results"]] == [made.data["id"]]
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404
    verbs = AuditEntry.objects.filter(object_type="notice_rule").order_by("pk")
    assert list(verbs.values_list("verb", flat=True)) == [
        "notice_rule.created",
        "notice_rule.changed",
        "notice_rule.removed",
    ]


def test_rules_about_others_are_for_those_who_manage(
    api_as: ApiAs, alice: User, root: User, charlie: User, example: Example
) -> None:
    queue, policy = example.dev_queue.name, str(example.dev.pk)
    for user in (alice, charlie):
        api = api_as(user)
        answers = [
            api.post(RULES, {"scope": "queue", "queue": queue, "kinds": ["failed"]}),
            api.post(RULES, {"scope": "policy", "policy": policy, "kinds": ["failed"]}),
        ]
        assert [one.status_code for one in answers] == [400, 400]
        assert [list(one.data["fields"]) for one in answers] == [["queue"], ["policy"]]

    api = api_as(root)
    made = api.post(RULES, {"scope": "queue", "queue": queue, "kinds": ["failed"]})
    assert made.data["queue"] == {"id": example.dev_queue.pk, "name": queue}
    assert api.post(RULES, {"scope": "policy", "policy": policy, "kinds": ["failed"]}).data[
        "policy"
    ] == {"id": example.dev.pk, "name": "Dev"}


def test_a_queue_that_the_user_may_not_see_any_more_is_not_named(
    api_as: ApiAs, root: User, charlie: User, example: Example
) -> None:
    target = Target(RuleKind.QUEUE, str(example.dev_queue.pk))
    people = RuleSubjects(users=(charlie,))
    rule_grant(actor=root, target=target, level=Level.MANAGE, subjects=people)
    api = api_as(charlie)
    rule = {"scope": "queue", "queue": example.dev_queue.name, "kinds": ["failed"]}
    address = f"{RULES}{api.post(RULES, rule).data['id']}/"
    assert api.get(address).data["queue"]["name"] == example.dev_queue.name

    rule_remove(actor=root, target=target, level=Level.MANAGE)
    Queue.objects.filter(pk=example.dev_queue.pk).update(name="secret")

    answers = [
        api.get(RULES),
        api.get(address),
        api.patch(address, {"kinds": ["ended"]}),
        api.delete(address),
    ]
    assert [one.status_code for one in answers] == [200, 200, 200, 204]
    assert "secret" not in "".join(map(str, [one.data for one in answers]))
    assert answers[1].data["queue"] is None
    names = AuditEntry.objects.filter(verb__startswith="notice_rule.").order_by("pk")
    assert [one.object_name for one in names][1:] == ["a queue that you may not see"] * 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scope": "own", "kinds": []}, "kinds"),
        ({"scope": "own", "kinds": ["born"]}, "kinds.0"),
        ({"scope": "own", "kinds": "failed"}, "kinds"),
        ({"scope": "own", "kinds": ["waiting"]}, "wait_minutes"),
        ({"scope": "own", "kinds": ["waiting"], "wait_minutes": 7}, "wait_minutes"),
        ({"scope": "own", "kinds": ["failed"], "wait_minutes": 30}, "wait_minutes"),
        ({"scope": "queue", "kinds": ["failed"]}, "queue"),
        ({"scope": "own", "policy": "Dev", "kinds": ["failed"]}, "policy"),
        ({"scope": "all", "kinds": ["failed"]}, "scope"),
        ({"scope": "own", "kinds": ["failed"], "kind": 1}, "kind"),
    ],
)
def test_what_is_wrong_with_a_rule_is_named(
    api_as: ApiAs, root: User, example: Example, body: dict[str, Any], field: str
) -> None:
    answer = api_as(root).post(RULES, body)

    assert answer.status_code == 400
    assert field in answer.data["fields"], answer.data
    assert not NoticeRule.objects.exists()


def test_the_rules_of_one_user_are_bounded(
    api_as: ApiAs, alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MOST_RULES", 2)
    body = {"scope": "own", "kinds": ["failed"]}

    statuses = [api_as(alice).post(RULES, body).status_code for _ in range(3)]

    assert statuses == [201, 201, 409]
    assert api_as(bob).post(RULES, body).status_code == 201


def test_notices_are_listed_and_read_by_their_user(
    api_as: ApiAs, alice: User, charlie: User, submit: Submit, happen: Happen, example: Example
) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["failed", "ended"])
    task = submit(alice, "ö train")
    happen(task, "task.failed", exit_code=2)
    happen(task, "task.completed")
    notices_make()
    api = api_as(alice)

    listed = api.get(NOTICES).data["results"]
    first = api.get(NOTICES, {"limit": 1}).data
    oldest = Notice.objects.earliest("pk").pk

    assert [one["event"] for one in listed] == ["task.completed", "task.failed"]
    assert listed[1] | {"at": "", "id": 0} == {
        "id": 0,
        "at": "",
        "kind": "failed",
        "event": "task.failed",
        "task": str(task.pk),
        "name": "ö train",
        "queue": example.dev_queue.name,
        "data": {"exit_code": 2},
        "read_at": None,
    }
    assert len(first["results"]) == 1
    assert first["next"]
    assert api_as(charlie).get(NOTICES).data["results"] == []
    assert api_as(charlie).post(f"{NOTICES}read/").data == {"unread": 0}
    assert api.post(f"{NOTICES}read/", {"ids": [oldest]}).data == {"unread": 1}
    unread = api.get(NOTICES, {"unread": "true"}).data["results"]
    assert [one["event"] for one in unread] == ["task.completed"]
    assert api.post(f"{NOTICES}read/", {}).data == {"unread": 0}
    for wrong in ({"ids": ["x"]}, {"ids": [2**70]}, {"ids": 3}, {"id": 1}):
        assert api.post(f"{NOTICES}read/", wrong).status_code == 400
    assert api.get(NOTICES, {"unread": "maybe"}).status_code == 400
