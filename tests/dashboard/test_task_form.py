"""The form of a new task: every field, copies of own tasks, and the same as a command."""

import json
import re
import shlex
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings
from typer.testing import CliRunner

from apps.accounts.models import User
from apps.core.keyring import HIDDEN
from apps.dashboard.forms_tasks import FORM_FIELDS, MORE, TaskForm
from apps.dashboard.selectors import task_forms
from apps.dashboard.task_commands import TaskCommands
from apps.tasks.models import Task
from apps.tasks.selectors.secrets import task_secrets
from apps.tasks.services.enqueue.submission import task_change, task_create
from apps.tasks.task_spec import FIELDS, TaskSpec, spec_of
from rpm_client.cli import submit as cli
from rpm_client.cli.app import app
from tests.allocation.state import make_node
from tests.dashboard.conftest import ClientFor, Submit
from tests.dashboard.page_reader import text
from tests.people import Example

pytestmark = pytest.mark.django_db

FORM = reverse("task_enqueue")
# Every field of a task but its queue, and what is typed for it.
SPEC = {
    "name": "train",
    "image": "registry.example/train:1",
    "command": ["sh", "-c", "echo 'a b'"],
    "environment": {"RATE": "3", "API_TOKEN": "hidden-words"},
    "secrets": {"PASSWORD": "secret-words"},
    "working_dir": "/work",
    "request": {"gpu": "2", "cpu": "8"},
    "replicas": 2,
    "volumes": ["data", "models"],
    "priority": 3,
    "is_preemptible": False,
    "is_restartable": False,
    "time_limit_s": 600,
    "retries": 4,
    "checkpoint_volume": "data",
    "abort_callback": {"script": "save", "language": "python", "timeout_s": 9},
    "tags": ["night", "a tag"],
    "hold": True,
    "array": {"size": 8, "limit": 2},
}


def typed(client: Client, path: str) -> dict[str, str]:
    """What a browser sends of the form as the page shows it."""
    form = client.get(path).context["form"]
    shown = {name: form[name].value() for name in form.fields}
    return {name: str(value) for name, value in shown.items() if value not in {None, "", False}}


def test_every_field_of_a_task_can_be_set_in_the_form() -> None:
    missing, unknown = set(FIELDS) - set(FORM_FIELDS), set(FORM_FIELDS) - set(FIELDS)

    words = "add them to TaskForm, FORM_FIELDS, values and task_values of forms_tasks.py"
    assert not missing, f"{sorted(missing)} of TaskSpec cannot be set in the form: {words}"
    assert not unknown, f"{sorted(unknown)} of FORM_FIELDS are no fields of TaskSpec"
    assert {name for fields in FORM_FIELDS.values() for name in fields} == set(TaskForm.base_fields)


def test_every_field_of_the_form_is_on_the_page(alice: User, client_for: ClientFor) -> None:
    page = client_for(alice).get(FORM).content.decode()

    assert [name for name in TaskForm.base_fields if f'name="{name}"' not in page] == []
    assert set(MORE) < set(TaskForm.base_fields)


def test_the_cards_of_queues_say_what_becomes_of_the_typed_amounts(
    example: Example, alice: User, charlie: User, client_for: ClientFor
) -> None:
    make_node(example.h100, name="h1")
    path, queue = reverse("task_queue_starts"), example.dev_queue
    typed_amounts = {"queue": queue.name, "is_preemptible": "on", "gpu": "3"}

    form = client_for(alice).get(f"{FORM}?queue={queue.name}").content.decode()
    plain = text(client_for(alice).get(path, {"is_preemptible": "on"}))
    fixed = text(client_for(alice).get(path, typed_amounts))
    wrong = text(client_for(alice).get(path, typed_amounts | {"priority": "many"}))
    others = client_for(charlie).get(path).content.decode()

    assert re.search(rf'type="radio" name="queue" value="{queue.name}"\s+checked', form)
    assert "Starts now Free for 2 such tasks" in plain
    assert "Does not fit request is fixed by the profile of this queue" in fixed
    assert "Does not fit Enter a whole number from -1000 to 1000." in wrong
    assert f'id="start-{queue.pk}"' not in others


def test_a_draft_keeps_every_field_through_the_form(alice: User, client_for: ClientFor) -> None:
    client = client_for(alice)
    draft = task_create(actor=alice, spec=spec_of(SPEC))
    # No draft waits for others.
    assert set(SPEC) == set(FIELDS) - {"queue", "after"}, "give the new field a value here"

    client.post(FORM, {**typed(client, f"{FORM}?copy={draft.pk}"), "copy": str(draft.pk)})

    copy = Task.objects.exclude(pk=draft.pk).get()
    assert copy.spec == draft.spec
    assert (copy.request, task_secrets(copy)) == (draft.request, SPEC["secrets"])
    assert copy.owner == alice


def test_a_change_of_one_field_leaves_all_others(alice: User, client_for: ClientFor) -> None:
    client = client_for(alice)
    draft = task_create(actor=alice, spec=spec_of(SPEC))
    path = reverse("task_edit", args=[draft.pk])

    client.post(path, {**typed(client, path), "abort_timeout_s": "10", "amounts": "cpu=9"})

    draft.refresh_from_db()
    callback = {"script": "save", "language": "python", "timeout_s": 10}
    want = spec_of({**SPEC, "abort_callback": callback, "request": {"gpu": "2", "cpu": "9"}})
    assert (draft.spec.abort_callback, draft.request) == (want.abort_callback, want.request)
    assert task_secrets(draft) == SPEC["secrets"]
    assert (draft.spec.tags, draft.spec.retries) == (["night", "a tag"], 4)


def test_a_copy_shows_no_hidden_value_and_keeps_it_unless_another_is_typed(
    alice: User, client_for: ClientFor, settings: Settings
) -> None:
    settings.RPM_REDACTED_VARIABLES = ["*_TOKEN"]
    client, path = client_for(alice), FORM
    draft = task_create(actor=alice, spec=spec_of(SPEC))
    page = client.get(f"{path}?copy={draft.pk}").content.decode()
    fields = typed(client, f"{path}?copy={draft.pk}") | {"copy": str(draft.pk)}

    client.post(path, {**fields, "name": "same"})
    client.post(path, {**fields, "name": "other", "secrets": "PASSWORD=new"})
    without = client.post(path, {**fields, "copy": "", "name": "none"})

    assert "hidden-words" not in page
    assert "secret-words" not in page
    assert f"a hidden value ({HIDDEN}) stays as it is" in page
    same, other = (Task.objects.get(name=name) for name in ("same", "other"))
    assert same.spec.environment["API_TOKEN"] == "hidden-words"
    assert task_secrets(same) == {"PASSWORD": "secret-words"}
    assert task_secrets(other) == {"PASSWORD": "new"}
    # Without its source there is no value to keep.
    assert without.status_code == 400


def test_only_own_tasks_are_copied(
    alice: User, bob: User, root: User, submit: Submit, client_for: ClientFor
) -> None:
    task = submit(alice, "train-17")

    own = text(client_for(alice).get(f"{FORM}?copy={task.pk}"))
    link = f'href="{FORM}?copy={task.pk}"'
    pages = {
        user: client_for(user).get(reverse("task_detail", args=[task.pk])).content.decode()
        for user in (alice, bob, root)
    }

    assert "A copy of train-17" in " ".join(own.split())
    assert [link in pages[user] for user in (alice, bob, root)] == [True, False, False]
    for user in (bob, root):
        assert "train-17" not in text(client_for(user).get(f"{FORM}?copy={task.pk}"))
    assert client_for(alice).get(f"{FORM}?copy=nothing").status_code == 200


def test_errors_below_more_open_it_and_stand_at_their_field(
    alice: User, client_for: ClientFor
) -> None:
    client = client_for(alice)
    plain = client.get(FORM).context["form"]

    wrong = client.post(
        FORM,
        {"name": "a", "abort_script": "x", "abort_timeout_s": "0", "amounts": "gpu=1"},
    )
    late = client.post(FORM, {"name": "a", "secrets": "1=x"})
    split = client.post(FORM, {"name": "a", "secrets": "KEY=a\n\nsecond"})

    assert not plain.is_more_open
    form = wrong.context["form"]
    assert form.is_more_open
    assert set(form.errors) == {"abort_timeout_s", "amounts"}
    assert list(late.context["form"].errors) == ["secrets"]
    assert split.context["form"].errors["secrets"] == ["Line 3: write NAME=value."]


def test_images_of_own_tasks_are_suggested_the_latest_first(
    alice: User, bob: User, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_forms, "RECENT_TASKS", 4)
    for owner, image in ((alice, "old"), (alice, "a:1"), (alice, "b:2"), (alice, "a:1")):
        task_create(actor=owner, spec=TaskSpec(name="x", image=image))
    task_create(actor=alice, spec=TaskSpec(name="x", command=["true"]))
    task_create(actor=bob, spec=TaskSpec(name="x", image="secret:1"))

    images = client_for(alice).get(FORM).context["images"]

    assert images == [spec_of({"name": "x", "image": name}).image for name in ("a:1", "b:2")]


def test_a_task_is_shown_as_commands_that_make_the_same_task_without_its_secrets(
    alice: User, client_for: ClientFor, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RPM_REDACTED_VARIABLES = ["*_TOKEN"]
    client = client_for(alice)
    fields = {
        "name": "my train",
        "image": "train:1",
        "command": "sh -c 'echo $HOME; -x'",
        "environment": "RATE=3\nAPI_TOKEN=hidden-words",
        "secrets": "PASSWORD=secret-words",
        "priority": "-2",
        "is_restartable": "on",
        "volumes": "data",
        "amounts": "cpu=8",
        "time_limit_min": "10",
        "retries": "2",
        "abort_script": "save",
        "commands": "1",
    }

    page = client.post(FORM, fields)

    assert page.status_code == 200
    assert Task.objects.count() == 0
    commands: TaskCommands = page.context["commands"]
    shown = page.content.decode().partition('aria-label="As a command"')[2]
    assert "secret-words" not in shown
    assert "hidden-words" not in shown
    assert commands.missing == ("--abort-script FILE",)
    assert commands.variables == ("API_TOKEN", "PASSWORD")
    sent = json.loads(shlex.split(commands.curl)[6])
    assert sent["secrets"] == {"PASSWORD": "<value of PASSWORD>"}
    assert sent["environment"] == {"RATE": "3", "API_TOKEN": "<value of API_TOKEN>"}
    # Where the line is called, variables hold the hidden values.
    monkeypatch.setenv("API_TOKEN", "<value of API_TOKEN>")
    monkeypatch.setenv("PASSWORD", "<value of PASSWORD>")
    want = spec_of({**sent, "abort_callback": None})
    assert run_by_rpmctl(commands.rpmctl) == want


def run_by_rpmctl(line: str) -> TaskSpec:
    """The task that the line describes, as the program reads it."""
    sent: dict[str, Any] = {}

    class Client:
        def task_submit(self, description: dict[str, Any]) -> dict[str, str]:
            sent.update(description)
            return {"id": "1"}

    words = shlex.split(line)
    assert words[0] == "rpmctl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "client_of", lambda _context: Client())
        done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, done.output
    return spec_of(sent)


def test_a_draft_changed_by_an_administrator_is_copied_as_its_owner_sees_it(
    alice: User, root: User, client_for: ClientFor
) -> None:
    draft = task_create(actor=alice, spec=TaskSpec(name="train", command=["true"]))
    task_change(actor=root, task=draft, changes={"command": ["other"]})

    form = client_for(alice).get(f"{FORM}?copy={draft.pk}").context["form"]

    assert form["command"].value() == "other"


def test_a_new_task_starts_after_those_that_the_form_names(
    alice: User, example: Example, submit: Submit, client_for: ClientFor
) -> None:
    client, first, second = client_for(alice), submit(alice, "first"), submit(alice, "second")
    typed_after = f"{first.pk}:any\r\n {second.pk} \r\n"
    fields = {
        "name": "third",
        "command": "true",
        "after": typed_after,
        "is_restartable": "on",
        "is_preemptible": "on",
    }
    queue = {"queue": example.dev_queue.name}

    commands = client.post(FORM, {**fields, **queue, "commands": "1"}).context["commands"]
    draft = client.post(FORM, fields)
    wrong = client.post(FORM, {**fields, **queue, "after": f"{first.pk}:soon"})
    client.post(FORM, {**fields, **queue})

    after = [{"task": str(first.pk), "when": "any"}, {"task": str(second.pk), "when": "ok"}]
    assert run_by_rpmctl(commands.rpmctl) == spec_of(
        {"name": "third", "command": ["true"], "after": after, **queue}
    )
    assert "name a queue" in str(draft.context["form"].errors["after"])
    assert wrong.context["form"].errors["after"] == ["Must be one of ok, failed, any"]
    assert wrong.context["form"].is_more_open
    task = Task.objects.get(name="third")
    assert task.ineligible_code == "dependency"
    page = client.get(reverse("task_detail", args=[task.pk]))
    assert f'href="{reverse("task_detail", args=[first.pk])}">first</a>' in page.content.decode()
    shown = " ".join(text(page).split())
    assert "Starts after" in shown
    assert "has to end" in shown
    assert "has to complete" in shown
    assert not client.get(f"{FORM}?copy={task.pk}").context["form"]["after"].value()
