"""Lists, several logs, cancelling and changing, against a real server."""

import json
import re
import uuid
from pathlib import Path

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.policies.models import Pool
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Attempt, AttemptLog, Task
from rpm_client import Client
from tests.allocation.state import enqueue, make_node
from tests.client.conftest import ctl
from tests.people import Example

pytestmark = pytest.mark.django_db(transaction=True)


def made(access: dict[str, str], queue: str, *words: str) -> str:
    done = ctl(access, "enqueue", "-q", queue, *words, "--", "true")
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def test_a_list_is_of_the_user_and_of_all_where_that_is_wanted(
    access: dict[str, str], example: Example, bob: User
) -> None:
    task_id = made(access, example.dev_queue.name, "--name", "mine")
    enqueue(bob, example.dev_queue, 1)

    mine = ctl(access, "list", "-o", "id,name,exit_code").stdout
    names = ctl(access, "list", "--name", "nothing").stdout
    everybody = json.loads(ctl(access, "list", "--all", "--json").stdout)
    his = json.loads(ctl(access, "list", "--owner", "bob", "--json").stdout)
    unknown = ctl(access, "list", "-o", "id,moon")

    assert (mine, names) == (f"{task_id}\tmine\t\n", "")
    assert {task["owner"] for task in his} <= {"bob"}
    assert len(everybody) == 1 + len(his)
    assert unknown.exit_code == 2


def test_a_task_is_shown_in_words(access: dict[str, str], example: Example) -> None:
    task_id = made(access, example.dev_queue.name, "--priority", "-2", "-t", "night")

    lines = ctl(access, "show", task_id).stdout.splitlines()

    assert f"id: {task_id}" in lines
    assert {"state: queued", "priority: -2", "command: true", "tags: night"} <= set(lines)


def test_a_task_that_was_rejected_and_an_array_are_explained(
    access: dict[str, str], example: Example
) -> None:
    queue = example.dev_queue.name
    rejected, array = made(access, queue), made(access, queue, "--array", "0-4", "--env", "A=b c")
    Task.objects.filter(pk=rejected).update(state=TaskState.REJECTED, state_detail="Too large.")

    why = [ctl(access, "explain", one).stdout for one in (rejected, array)]
    shown = ctl(access, "show", array).stdout.splitlines()

    assert why[0].startswith("It does not wait: its state is rejected: Too large.\n")
    assert why[1].startswith("An array: 5 left.\n")
    assert {"array: 5 elements", "array counts: 5 left", "environment: A='b c'"} <= set(shown)


def test_tasks_are_cancelled_after_a_question_with_their_number(
    access: dict[str, str], example: Example, bob: User
) -> None:
    queue = example.dev_queue.name
    for name in ("night-1", "night-2", "day"):
        made(access, queue, "--name", name)
    enqueue(bob, example.dev_queue, 1)

    refused = ctl(access, "cancel", "--name", "night", given="n\n")
    asked = ctl(access, "cancel", "--name", "night", given="y\n")
    nothing = ctl(access, "cancel")
    none = ctl(access, "cancel", "--name", "night", "--yes")
    mixed = ctl(access, "cancel", "--queue", queue, "--state", "aborted,queued")
    rest = ctl(access, "cancel", "--queue", queue, "--yes")

    assert (refused.exit_code, nothing.exit_code) == (1, 2)
    assert refused.stderr.endswith("Nothing is done.\n")
    assert "Abort 2 tasks (2 queued)?" in asked.output
    assert sum(line.endswith("  aborted") for line in asked.stdout.splitlines()) == 2
    assert (none.stdout, len(rest.stdout.splitlines())) == ("", 1)
    # Ended tasks are not aborted, and nobody answered.
    assert "Abort 1 tasks (1 queued)?" in mixed.output
    assert (mixed.exit_code, "give --yes" in mixed.stderr) == (1, True)
    # Those of others stay.
    assert list(
        Task.objects.exclude(state="aborted").values_list("owner__username", flat=True)
    ) == ["bob"]


def test_running_elements_of_an_array_are_cancelled_and_no_others(
    access: dict[str, str], example: Example
) -> None:
    make_node(example.bare_metal, name="b1")
    array = made(access, example.dev_queue.name, "--array", "0-3")
    run_pass()

    listed = ctl(access, "list", "--state", "allocated").stdout
    asked = ctl(access, "cancel", "--state", "allocated", given="y\n")

    assert listed.startswith(array)
    assert "Abort 2 tasks (2 allocated)?" in asked.output
    states = Task.objects.filter(array=uuid.UUID(array)).order_by("array_index")
    assert list(states.values_list("state", flat=True)) == ["stopping"] * 2 + ["queued"] * 2
    whole = ctl(access, "cancel", "--queue", example.dev_queue.name, given="n\n")
    assert "Abort 1 tasks (1 queued), with 4 elements of arrays?" in whole.output


def test_an_id_may_be_given_by_its_beginning(access: dict[str, str], example: Example) -> None:
    queue = example.dev_queue.name
    first = made(access, queue, "--name", "one")
    # A task of the same moment: its id has another digit behind the 25th character.
    twin = Task.objects.get(pk=first)
    twin.pk, twin.name, twin._state.adding = uuid.UUID(int=twin.pk.int ^ 1 << 40), "two", True
    twin.save(force_insert=True)
    second, same = str(twin.pk), 25

    shown = ctl(access, "show", second[: same + 1])
    several = ctl(access, "show", first[:6])
    plain = ctl(access, "show", first.replace("-", "")[:12])
    none = ctl(access, "abort", "ffffff")
    there = f"{second[: same + 1]}:/x"
    copies = [ctl(access, "cp", *two) for two in ((there, "."), (__file__, there))]
    short = ctl(access, "show", first[:5])
    after = ctl(access, "enqueue", "-q", queue, "--after", f"{second[: same + 1]}:any", "--", "a")

    assert f"id: {second}" in shown.stdout.splitlines()
    for many in (several, plain):
        assert many.exit_code == 2
        assert {first, second} <= set(re.findall(r"[0-9a-f-]{36}", many.stderr))
    assert (none.exit_code, short.exit_code) == (2, 1)
    assert "No task that you see" in none.stderr
    # This server has no streams: the address is named that did not answer.
    assert all(f"/ws/tasks/{second}/stream/" in str(one.exception) for one in copies)
    waiting = ctl(access, "show", after.stdout.strip()).stdout
    assert f"after: {second}:any (two, queued, waiting)\n" in waiting


def test_an_unknown_queue_is_named(access: dict[str, str], example: Example) -> None:
    refused = ctl(access, "list", "--queue", "moon")

    assert "there is no such queue that you see" in str(refused.exception)


def test_attempts_are_listed(access: dict[str, str], example: Example) -> None:
    make_node(example.bare_metal, name="b1")
    task = made(access, example.dev_queue.name)
    run_pass()

    rows = ctl(access, "attempts", task).stdout.splitlines()
    found = json.loads(ctl(access, "attempts", task, "--json").stdout)

    assert len(rows) == len(found) == 1
    assert rows[0].split("\t")[:2] == ["1", "allocated"]


def test_drafts_are_deleted_after_a_question(access: dict[str, str], example: Example) -> None:
    draft, task = (made(access, example.dev_queue.name) for _ in range(2))
    ctl(access, "dequeue", draft)

    kept = ctl(access, "delete", draft, given="n\n")
    assert kept.exit_code == 1
    assert Task.objects.filter(pk=draft).exists()
    gone = ctl(access, "delete", draft, "--yes")
    refused = ctl(access, "delete", task, "--yes")

    assert gone.stdout == f"{draft}  deleted\n"
    assert not Task.objects.filter(pk=draft).exists()
    assert "Only drafts can be deleted" in str(refused.exception)


def test_tasks_are_cancelled_by_id(access: dict[str, str], example: Example) -> None:
    first = made(access, example.dev_queue.name)

    done = ctl(access, "cancel", first)
    wrong = ctl(access, "cancel", str(uuid.uuid4()))
    both = ctl(access, "cancel", first, "--name", "a")

    assert done.stdout.split() == [first, "aborted"]
    assert (wrong.exit_code, "not_found" in wrong.stdout) == (1, True)
    assert both.exit_code == 2


def test_a_draft_is_changed_and_a_task_moves(
    access: dict[str, str], example: Example, tmp_path: Path
) -> None:
    queue = example.dev_queue.name
    draft = ctl(access, "enqueue", "--name", "draft", "--", "true").stdout.strip()
    first, second = made(access, queue), made(access, queue)
    file = tmp_path / "changes.yaml"
    file.write_text("tags: [night]\npriority: -9\n")

    words = ("edit", draft, "-f", str(file), "--priority", "-3", "--json", "--", "ls", "--all")
    changed = json.loads(ctl(access, *words).stdout)
    nothing = ctl(access, "edit", draft)
    two = ctl(access, "move", second, queue, "--to", "top")
    moved = ctl(access, "move", second, "--to", "top")
    aborted = ctl(access, "abort", first, second)

    assert (changed["tags"], changed["priority"], changed["command"]) == (
        ["night"],
        -3,
        ["ls", "--all"],
    )
    assert (nothing.exit_code, two.exit_code) == (2, 2)
    # Alice does not manage the queue.
    assert "manage" in str(moved.exception)
    assert aborted.stdout == "aborted\naborted\n"


def test_logs_of_several_tasks_are_merged_in_whole_lines(
    access: dict[str, str], client: Client, example: Example
) -> None:
    ids = []
    for number in (1, 2):
        task_id = client.task_submit({"name": f"draft-{number}"})["id"]
        attempt = Attempt.objects.create(
            task_id=task_id,
            generation=1,
            queue=example.dev_queue,
            policy=example.dev,
            pool=Pool.objects.get(pk=example.h100.pk),
            allocated_at=timezone.now(),
        )
        text = f"{number} begins\n{number} has no end".encode()
        AttemptLog.objects.create(attempt=attempt, offset=0, at=timezone.now(), data=text)
        Task.objects.filter(pk=task_id).update(state=TaskState.ABORTED)
        ids.append(task_id)

    read = ctl(access, "logs", *ids).stdout
    followed = ctl(access, "logs", "--follow", *ids).stdout

    want = [
        f"{one}/0  {n} {end}" for n, one in enumerate(ids, 1) for end in ("begins", "has no end")
    ]
    assert read.splitlines() == want
    assert sorted(followed.splitlines()) == sorted(want)
