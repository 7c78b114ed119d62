"""The page that changes a draft."""

from typing import Any

import pytest
from django.urls import reverse
from pytest_django.fixtures import Settings

from apps.accounts.models import User
from apps.events.models import Event
from apps.tasks.models import Task
from apps.tasks.services.enqueue.submission import task_change, task_create
from apps.tasks.task_spec import TaskSpec
from tests.dashboard.conftest import ClientFor, Submit
from tests.dashboard.page_reader import text

pytestmark = pytest.mark.django_db
SCRIPT = 'for x in a b; do\n  echo "$x"\ndone'


@pytest.fixture
def draft(alice: User, settings: Settings) -> Task:
    settings.RPM_REDACTED_VARIABLES = ["*_TOKEN"]
    spec = TaskSpec(
        name="train",
        command=["sh", "-c", SCRIPT],
        environment={"RATE": "3", "API_TOKEN": "hidden-words"},
        time_limit_s=90,
        tags=["night"],
    )
    return task_create(actor=alice, spec=spec)


def typed(client: Any, task: Task, **changes: str) -> dict[str, str]:
    """What a browser sends of the form: line ends of its own."""
    form = client.get(reverse("task_edit", args=[task.pk])).context["form"]
    shown = {name: form[name].value() for name in form.fields}
    fields = {name: str(value) for name, value in shown.items() if value not in {None, ""}}
    return {name: _as_sent(value) for name, value in {**fields, **changes}.items()}


def _as_sent(value: str) -> str:
    return value.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


def test_what_was_typed_changes_and_the_rest_of_a_draft_stays(
    alice: User, draft: Task, client_for: ClientFor
) -> None:
    client, path = client_for(alice), reverse("task_edit", args=[draft.pk])
    page = client.get(reverse("task_detail", args=[draft.pk])).content.decode()
    fields = typed(client, draft)
    variables = fields["environment"].replace("RATE=3", "RATE=4")

    saved = client.post(path, {**fields, "name": "train-2", "environment": variables}, follow=True)

    assert f'href="{path}"' in page
    assert "hidden-words" not in fields["environment"]
    assert "train-2 is saved." in text(saved)
    draft.refresh_from_db()
    assert draft.spec == TaskSpec(
        name="train-2",
        command=["sh", "-c", SCRIPT],
        environment={"RATE": "4", "API_TOKEN": "hidden-words"},
        time_limit_s=90,
        tags=["night"],
    )
    [event] = Event.objects.filter(kind="task.changed")
    assert event.data["fields"] == ["environment", "name"]


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        pytest.param(["sh", "-c", "echo a\r\necho b"], {}, id="line ends of Windows"),
        pytest.param(["sh", "-c", "echo a\recho b"], {}, id="a return alone"),
        pytest.param(["a", " b ", "c\n"], {"A": "  x  "}, id="blanks"),
        pytest.param(["a"], {"B": "x\u2028LD_PRELOAD=/other", "C": "\x85\x0c"}, id="separators"),
    ],
)
def test_who_changes_the_name_of_a_draft_changes_nothing_else(
    alice: User, client_for: ClientFor, command: list[str], environment: dict[str, str]
) -> None:
    spec = TaskSpec(name="train", command=command, environment=environment)
    draft = task_create(actor=alice, spec=spec)
    client, path = client_for(alice), reverse("task_edit", args=[draft.pk])

    saved = client.post(path, typed(client, draft, name="other"))

    assert saved.status_code == 302
    draft.refresh_from_db()
    assert (draft.name, draft.spec.command, draft.spec.environment) == (
        "other",
        command,
        environment,
    )


def test_a_line_of_the_environment_ends_at_its_line_end_alone(
    alice: User, client_for: ClientFor
) -> None:
    environment = {"B": "x\u2028LD_PRELOAD=/other"}
    draft = task_create(actor=alice, spec=TaskSpec(name="train", environment=environment))
    client, path = client_for(alice), reverse("task_edit", args=[draft.pk])
    shown = typed(client, draft)["environment"]

    client.post(path, typed(client, draft, environment=f"{shown}\nNEW=1"))

    draft.refresh_from_db()
    assert draft.spec.environment == {**environment, "NEW": "1"}


def test_a_draft_that_was_changed_meanwhile_is_not_overwritten(
    alice: User, draft: Task, client_for: ClientFor
) -> None:
    client = client_for(alice)
    fields = typed(client, draft, name="mine")
    task_change(actor=alice, task=draft, changes={"name": "theirs"})

    refused = client.post(reverse("task_edit", args=[draft.pk]), fields)

    assert refused.status_code == 400
    assert "The draft was changed since you opened it." in text(refused)
    draft.refresh_from_db()
    assert draft.name == "theirs"


def test_only_the_owner_edits_and_only_a_draft(
    alice: User, root: User, draft: Task, submit: Submit, client_for: ClientFor
) -> None:
    path, waiting = reverse("task_edit", args=[draft.pk]), submit(alice, "waits")

    wrong = client_for(alice).post(path, {**typed(client_for(alice), draft), "priority": "-1001"})
    started = client_for(alice).get(reverse("task_edit", args=[waiting.pk]), follow=True)

    assert "Enter a whole number from -1000 to 1000." in text(wrong)
    assert "Only drafts can be edited. Dequeue the task first." in text(started)
    assert client_for(root).get(path).status_code == 404
