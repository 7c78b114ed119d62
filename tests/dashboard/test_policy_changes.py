"""Administrators make, change, connect, pause and remove policies, through HTTP."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import Group
from django.urls import reverse

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change, policy_create
from apps.configuration.services.preview import tasks_returned_by_change
from apps.policies.models import Policy, Queue
from apps.tasks.models import Attempt, Task
from tests.allocation.state import apply, begin, decided, enqueue, make_node
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import changed_form, errors_at, shown, text
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_a_new_policy_is_previewed_and_then_made(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client, path = client_for(root), reverse("policy_new")
    Group.objects.create(name="a second ago")
    assert "a second ago" in text(client.get(path))
    form = {
        "name": "Robotics",
        "group": str(Group.objects.get(name="a second ago").pk),
        "reserved.gpu": "4",
        "limit.gpu": "8",
        "weight": "1",
    }

    looked = client.post(path, form | {"preview": "1"})
    assert not Policy.objects.filter(name="Robotics").exists()
    made = client.post(path, form)

    assert looked.status_code == 200
    assert "Preview: no task starts, stops or waits longer because of it" in text(looked)
    policy = Policy.objects.get(name="Robotics")
    assert made["Location"] == reverse("policy_edit", args=[policy.pk])
    assert policy.group.name == "a second ago"
    assert [(a.reserved_text, a.limit_text) for a in policy.amounts.all()] == [("4", "8")]


def test_the_dialog_gets_no_page_around_it_and_leads_on_when_it_is_done(
    example: Example, root: User, dev_group: Group, client_for: ClientFor
) -> None:
    client = client_for(root)
    headers = {"X-Requested-With": "dialog", "HX-Request": "true"}

    form = client.get(reverse("policy_new"), headers=headers).content.decode()
    made = client.post(
        reverse("policy_new"),
        {"name": "Robotics", "group": str(dev_group.pk), "weight": "1"},
        headers=headers,
    )

    assert "<html" not in form
    assert "<h2" in form
    policy = Policy.objects.get(name="Robotics")
    assert made["HX-Redirect"] == reverse("policy_edit", args=[policy.pk])


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
        pytest.param({"name": ""}, "name", "Enter a value for “Name”.", id="no name"),
        pytest.param({"name": "Research"}, "name", "is taken", id="a name that is taken"),
        pytest.param({"limit.gpu": "12.0005"}, "limit.gpu", "three decimal", id="too exact"),
        pytest.param({"reserved.gpu": "20"}, "reserved.gpu", "above the limit", id="reserved"),
        pytest.param({"group": ""}, "group", "Choose a value for “Group”.", id="no group"),
    ],
)
def test_what_will_not_do_is_said_at_its_field(
    typed: dict[str, str],
    field: str,
    sentence: str,
    example: Example,
    root: User,
    client_for: ClientFor,
) -> None:
    path = reverse("policy_edit", args=[example.dev.pk])

    answer = client_for(root).post(path, changed_form(example.dev, **typed))

    assert answer.status_code == 400
    assert sentence in errors_at(field, answer)


def test_a_save_that_would_preempt_asks_first(
    example: Example, root: User, alice: User, charlie: User, client_for: ClientFor
) -> None:
    policy_change(actor=root, policy=example.research, changes={"reserved": {}})
    make_node(example.h100, name="h1")
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 4)
    apply(*decided())
    begin(*Attempt.objects.all())
    enqueue(charlie, example.research_queue)
    path = reverse("policy_edit", args=[example.research.pk])
    form = changed_form(example.research)

    asked = client_for(root).post(path, form)
    kept = example.research.amounts.get().reserved_text
    saved = client_for(root).post(path, form | {"confirmed": "1"})

    assert asked.status_code == 409
    said = text(asked)
    assert "Not saved yet: tasks lose something 1 running task would be preempted." in said
    assert re.search(r"dev-4xgpu-\d of Dev in .*, for Research: is queued again", said)
    assert "Save, although 1 task loses something" in said
    assert kept == ""
    assert saved.status_code == 302
    assert example.research.amounts.get().reserved_text == "8"


def test_a_limit_below_a_waiting_task_says_that_it_stays_queued(
    example: Example, root: User, alice: User, client_for: ClientFor
) -> None:
    make_node(example.h100, name="h1")
    enqueue(alice, example.dev_queue, 2)
    path = reverse("policy_edit", args=[example.dev.pk])
    form = changed_form(example.dev) | {"reserved.gpu": "2", "limit.gpu": "2"}

    asked = text(client_for(root).post(path, form | {"preview": "1"}))

    assert (
        "2 waiting tasks could never run and would stay queued until the limit or the request "
        "changes." in asked
    )
    assert "2 could never run" in asked
    assert "rejected" not in asked


def test_reservations_beyond_the_capacity_are_warned_of_before_and_after_saving(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client, path = client_for(root), reverse("policy_edit", args=[example.dev.pk])
    form = changed_form(example.dev) | {"reserved.gpu": "40", "limit.gpu": "40"}

    looked = client.post(path, form | {"preview": "1"})
    saved = client.post(path, form, follow=True)

    words = "'Dev' (40), 'Research' (8) reserve 48 GPU together; the pools that they reach have 16."
    assert words in unescape(text(looked))
    assert "callout k-ok" not in looked.content.decode()
    assert words in unescape(text(saved))
    again = client.post(path, changed_form(example.dev) | {"description": "x", "preview": "1"})
    assert words not in unescape(text(again))


def test_another_group_says_whose_waiting_tasks_become_drafts(
    example: Example, root: User, alice: User, bob: User, client_for: ClientFor, submit: Submit
) -> None:
    path = reverse("policy_edit", args=[example.dev.pk])
    group = Group.objects.create(name="others")
    bob.groups.add(group)
    tasks = [submit(alice, "hers"), submit(alice, "hers too"), submit(bob, "his")]
    form = changed_form(example.dev, group=str(group.pk))

    asked = client_for(root).post(path, form)
    waiting = Task.objects.filter(state="queued").count()
    client_for(root).post(path, form | {"confirmed": "2"})

    assert "2 waiting tasks would become drafts. alice: 2 " in text(asked)
    assert waiting == 3
    for task in tasks:
        task.refresh_from_db()
    assert [task.state for task in tasks] == ["draft", "draft", "queued"]


def test_two_people_of_one_name_are_two_whose_tasks_return(
    example: Example, root: User, alice: User, bob: User, submit: Submit
) -> None:
    User.objects.filter(pk__in=[alice.pk, bob.pk]).update(first_name="Jan", last_name="Novak")
    for owner, count in ((alice, 1), (bob, 2)):
        for number in range(count):
            submit(owner, f"{owner.username}-{number}")
    empty = Group.objects.create(name="empty")

    returned = tasks_returned_by_change(actor=root, policy=example.dev, changes={"group": empty})

    assert [(one.pk, count) for one, count in returned] == [(bob.pk, 2), (alice.pk, 1)]


def test_two_administrators_overwrite_nothing_of_each_other(
    example: Example, root: User, dev_group: Group, client_for: ClientFor
) -> None:
    client, path = client_for(root), reverse("policy_edit", args=[example.dev.pk])
    opened = shown(client.get(path)) | {"group": str(dev_group.pk), "parent": ""}
    policy_change(actor=root, policy=example.dev, changes={"limit": {"gpu": 24}, "weight": 3})

    other_field = client.post(path, opened | {"name": "Developers"})
    same_field = client.post(path, opened | {"name": "Developers", "limit.gpu": "32"})
    typed_again = shown(same_field) | {"group": str(dev_group.pk), "parent": ""}
    kept = example.dev.amounts.get().limit_text
    insisted = client.post(path, typed_again)

    assert other_field.status_code == 302
    example.dev.refresh_from_db()
    assert (example.dev.name, example.dev.weight) == ("Developers", 3)
    assert same_field.status_code == 400
    assert "It was changed to this meanwhile: 24" in errors_at("limit.gpu", same_field)
    assert kept == "24"
    assert insisted.status_code == 302
    assert example.dev.amounts.get().limit_text == "32"


def test_a_description_of_several_lines_is_no_change_of_somebody_else(
    example: Example, root: User, client_for: ClientFor
) -> None:
    policy_change(actor=root, policy=example.dev, changes={"description": "one\ntwo"})
    client, path = client_for(root), reverse("policy_edit", args=[example.dev.pk])
    form = shown(client.get(path)) | {"group": str(example.dev.group_id), "parent": ""}
    # As browsers send it.
    form |= {"initial-description": "one\r\ntwo", "description": "one\r\ntwo\r\nthree"}

    client.post(path, form)

    example.dev.refresh_from_db()
    assert example.dev.description.splitlines() == ["one", "two", "three"]


def test_the_settings_that_are_rarely_touched_are_there_too(
    example: Example, root: User, client_for: ClientFor
) -> None:
    path = reverse("policy_edit", args=[example.dev.pk])
    form = changed_form(
        example.dev, **{"user_limit.gpu": "4", "weight": "2", "logs_open_to_group": "on"}
    )

    client_for(root).post(path, form)

    example.dev.refresh_from_db()
    assert example.dev.user_limit == {"gpu": "4"}
    assert (example.dev.weight, example.dev.logs_open_to_group) == (2, True)
    assert "<details" in client_for(root).get(path).content.decode()


def test_a_policy_is_paused_with_a_reason_and_resumed(
    example: Example, root: User, alice: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    said = text(client.get(reverse("policy_pause", args=[example.dev.pk])))
    client.post(reverse("policy_pause", args=[example.dev.pk]), {"reason": "audit"})
    paused = text(client.get(reverse("policy_edit", args=[example.dev.pk])))
    outsider = client_for(alice).post(reverse("policy_resume", args=[example.dev.pk]))
    example.dev.refresh_from_db()
    still = example.dev.is_paused
    client.post(reverse("policy_resume", args=[example.dev.pk]))

    assert "0 running tasks go on" in said
    assert "Paused audit" in paused
    assert outsider.status_code == 404
    assert still
    example.dev.refresh_from_db()
    assert not example.dev.is_paused


def test_saving_what_is_there_already_changes_nothing(
    example: Example, root: User, client_for: ClientFor
) -> None:
    before = example.dev.amounts.get().pk
    path = reverse("policy_edit", args=[example.dev.pk])

    client_for(root).post(path, changed_form(example.dev))

    assert example.dev.amounts.get().pk == before


def test_removing_a_profile_says_what_happens_and_happens(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    run_in(submit(alice, "runs"), example.h100)
    submit(alice, "waits")
    path = reverse("policy_disconnect", args=[example.dev.pk, example.dev_queue.pk])

    said = text(client_for(root).get(path))
    client_for(root).post(path)

    assert "1 waiting task becomes a draft; 1 running task finishes." in said
    assert not Queue.objects.filter(pk=example.dev_queue.pk, removed_at__isnull=True).exists()
    assert client_for(root).get(path).status_code == 404


def test_a_queue_of_another_policy_is_not_removed_through_this_one(
    example: Example, root: User, client_for: ClientFor
) -> None:
    path = reverse("policy_disconnect", args=[example.dev.pk, example.research_queue.pk])

    assert client_for(root).post(path).status_code == 404
    assert Queue.objects.get(pk=example.research_queue.pk).removed_at is None


def test_deleting_a_policy_says_what_happens_and_asks_for_its_name(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit
) -> None:
    submit(alice, "waits")
    path = reverse("policy_delete", args=[example.dev.pk])
    client = client_for(root)

    said = text(client.get(path))
    wrong = client.post(path, {"name": "dev"})
    kept = Policy.objects.get(pk=example.dev.pk).removed_at
    right = client.post(path, {"name": "Dev"})

    assert "Its 1 queue goes; 1 waiting task becomes a draft; 0 running tasks finish" in said
    assert wrong.status_code == 400
    assert "This is not the name of the policy" in text(wrong)
    assert kept is None
    assert right["Location"] == reverse("policy_list")
    assert client.get(reverse("policy_detail", args=[example.dev.pk])).status_code == 404


def test_a_policy_with_policies_below_it_is_not_deleted_and_says_why(
    example: Example, root: User, dev_group: Group, client_for: ClientFor
) -> None:
    top = policy_create(actor=root, name="Laboratory", group=dev_group)
    policy_change(actor=root, policy=example.dev, changes={"parent": top})

    answer = client_for(root).post(reverse("policy_delete", args=[top.pk]), {"name": "Laboratory"})

    assert answer.status_code == 400
    assert "Laboratory is the parent of Dev: move or remove those first." in text(answer)
