"""Secrets of tasks through REST: written, never read."""

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.accounts.models import User
from apps.core import keyring
from apps.core.keyring import HIDDEN
from apps.events.models import Event
from apps.tasks.models import Task
from apps.tasks.selectors.secrets import task_secrets
from tests.people import Example
from tests.tasks.api.test_tasks import TASKS, As, post, wanted

pytestmark = pytest.mark.django_db

KEY = "correct horse\nbattery\n"


def change(client: Any, task_id: str, **changes: Any) -> Any:
    return client.patch(f"{TASKS}{task_id}/", changes, format="json")


def test_a_secret_is_stored_sealed_and_shown_to_nobody(
    api_as: As, alice: User, root: User, example: Example
) -> None:
    answer = post(api_as(alice), body=wanted(example, secrets={"KEY": KEY}))

    assert answer.status_code == 201, answer.content
    assert answer.json()["secrets"] == {"KEY": HIDDEN}
    task = Task.objects.get()
    for reader in (alice, root):
        answer = api_as(reader).get(f"{TASKS}{task.pk}/")
        assert answer.json()["secrets"] == {"KEY": HIDDEN}
        assert b"horse" not in answer.content
    assert "horse" not in str(vars(task))
    assert not [event for event in Event.objects.all() if "horse" in str(event.data)]
    assert task_secrets(task) == {"KEY": KEY}


def test_who_may_not_read_the_content_sees_no_names(
    api_as: As, alice: User, bob: User, example: Example
) -> None:
    task_id = post(api_as(alice), body=wanted(example, secrets={"KEY": KEY})).json()["id"]

    assert api_as(bob).get(f"{TASKS}{task_id}/").json()["secrets"] is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"secrets": {"../x": "y"}}, "secrets.../x"),
        ({"secrets": {"A": HIDDEN}}, "secrets.A"),
        ({"secrets": {"A": "x" * 70_000}}, "secrets.A"),
        ({"secrets": {"A": "a\0b"}}, "secrets.A"),
        ({"secrets": {f"A{index}": "x" * 60_000 for index in range(5)}}, "secrets"),
        ({"secrets": {f"A{index}": "x" for index in range(65)}}, "secrets"),
        ({"secrets": {"A": "x"}, "environment": {"A": "y"}}, "secrets.A"),
        ({"secrets": {"A": "x"}, "environment": {"A_FILE": "y"}}, "secrets.A"),
    ],
)
def test_a_secret_that_will_not_do_is_named(
    api_as: As, alice: User, example: Example, changes: dict[str, Any], field: str
) -> None:
    answer = post(api_as(alice), body=wanted(example, **changes))

    assert answer.status_code == 400
    assert list(answer.json()["fields"]) == [field]


def test_a_draft_that_is_sent_back_as_it_was_read_keeps_what_was_hidden(
    api_as: As, alice: User
) -> None:
    client = api_as(alice)
    body = {"name": "t", "secrets": {"A": "one", "B": "two"}, "environment": {"MY_TOKEN": "x"}}
    draft = post(client, body=body).json()
    shown = {name: draft[name] for name in ("secrets", "environment")}
    shown["secrets"] |= {"B": "new"}

    answer = change(client, draft["id"], **shown)

    assert answer.status_code == 200, answer.content
    task = Task.objects.get()
    assert task_secrets(task) == {"A": "one", "B": "new"}
    assert task.spec.environment == {"MY_TOKEN": "x"}


def test_a_task_keeps_its_secrets_when_it_is_enqueued_and_taken_out(
    api_as: As, alice: User, example: Example
) -> None:
    client = api_as(alice)
    draft = post(client, body={"name": "t", "command": ["true"], "secrets": {"A": KEY}}).json()

    queued = post(client, f"{TASKS}{draft['id']}/enqueue/", {"queue": example.dev_queue.name})
    taken_out = post(client, f"{TASKS}{draft['id']}/dequeue/")

    assert (queued.status_code, taken_out.status_code) == (200, 200)
    assert task_secrets(Task.objects.get()) == {"A": KEY}


def test_keys_are_rotated_and_old_ones_dropped(
    api_as: As, alice: User, tmp_path: Any, settings: Any
) -> None:
    settings.RPM_SECRET_KEYS = []
    settings.RPM_KEY_RING_FILE = tmp_path / "key-ring"
    post(api_as(alice), body={"name": "t", "secrets": {"A": KEY}})
    before = Task.objects.get().secrets["A"]
    (old,) = keyring.keys()

    call_command("keys", "rotate", stdout=StringIO())
    both = keyring.keys()
    call_command("keys", "prune", stdout=StringIO())

    assert both[1:] == (old,)
    assert keyring.keys() == both[:1]
    task = Task.objects.get()
    assert task.secrets["A"] != before
    assert task_secrets(task) == {"A": KEY}


def test_nothing_is_dropped_while_something_cannot_be_opened(
    api_as: As, alice: User, tmp_path: Any, settings: Any
) -> None:
    settings.RPM_SECRET_KEYS = []
    settings.RPM_KEY_RING_FILE = tmp_path / "key-ring"
    post(api_as(alice), body={"name": "t", "secrets": {"A": KEY}})
    keyring.write_keys((keyring.new_key(), keyring.new_key()))

    with pytest.raises(CommandError, match="not in the key ring"):
        call_command("keys", "prune", stdout=StringIO())

    assert len(keyring.keys()) == 2


def test_somebody_elses_secret_does_not_open_in_a_task_of_ones_own(
    api_as: As, alice: User, bob: User, example: Example
) -> None:
    post(api_as(bob), body={"name": "his", "command": ["true"], "secrets": {"S": KEY}})
    client = api_as(alice)
    draft = post(client, body={"name": "t", "command": ["true"], "secrets": {"X": "own"}}).json()
    Task.objects.filter(pk=draft["id"]).update(
        secrets={"X": Task.objects.get(name="his").secrets["S"]}
    )

    answer = post(client, f"{TASKS}{draft['id']}/enqueue/", {"queue": example.dev_queue.name})

    assert answer.status_code == 409, answer.content
    assert answer.json()["code"] == "seal_mismatch"
    assert list(answer.json()["fields"]) == ["secrets.X"]
    assert b"horse" not in answer.content
    assert client.get(f"{TASKS}{draft['id']}/").status_code == 200
    assert client.get(TASKS).status_code == 200


def test_a_task_that_is_given_to_somebody_else_keeps_its_secrets_closed(
    api_as: As, alice: User, bob: User
) -> None:
    post(api_as(bob), body={"name": "his", "secrets": {"S": KEY}})
    Task.objects.update(owner=alice)

    with pytest.raises(keyring.SealMismatch, match="secrets S cannot be read"):
        task_secrets(Task.objects.get())


def test_rotating_goes_on_past_a_value_that_cannot_be_read(
    api_as: As, alice: User, tmp_path: Any, settings: Any
) -> None:
    settings.RPM_SECRET_KEYS = []
    settings.RPM_KEY_RING_FILE = tmp_path / "key-ring"
    for name in ("first", "second"):
        post(api_as(alice), body={"name": name, "secrets": {"A": KEY}})
    first, second = Task.objects.order_by("pk")
    Task.objects.filter(pk=first.pk).update(secrets=second.secrets)

    with pytest.raises(CommandError, match=f"{first.pk}/{alice.pk}: "):
        call_command("keys", "rotate", stdout=StringIO())
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("keys", "prune", stdout=StringIO())

    assert len(keyring.keys()) == 2
    second.refresh_from_db()
    assert keyring.opens(keyring.keys()[0], second.secrets["A"])
    assert task_secrets(second) == {"A": KEY}
