"""A node that starts no containers costs nobody a retry, and gets no more work."""

from pathlib import Path

import pytest

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.core.errors import BadInput
from apps.events.models import Event
from apps.execution.services.node_changes import node_edit
from apps.execution.services.node_registration import NodeFailed, node_add
from apps.execution.services.preflight import preflight_note
from apps.nodes.models import Node, Runtime, Transport
from apps.nodes.services import node_ask_removal, node_drain, node_pause, node_resume
from apps.tasks.models import Attempt, Task
from tests.execution.services.scripted_node import ScriptedNode, done, launch, refusal, states_of
from tests.people import Example

PULLED = done(state="present", progress="")
BROKEN = done(state="failed", detail="OCI runtime is broken")


def test_the_third_failed_start_drains_the_node_and_no_try_of_the_task_is_used_up(
    attempt: Attempt, node: ScriptedNode
) -> None:
    for _ in range(3):
        node.answers = [PULLED, refusal("start_failed", "exec failed"), BROKEN]
        launch(attempt, node)
        task = Task.objects.get()
        assert (task.state, task.failures) == ("queued", 0)
        assert "OCI runtime is broken" in task.state_detail
        run_pass()
        attempt = Attempt.objects.latest("generation")

    row = Node.objects.get()
    assert row.is_draining
    assert row.pause_reason == (
        "It failed to start a container 3 times in a row: OCI runtime is broken"
    )
    assert Task.objects.get().state == "queued"
    kinds = list(Event.objects.filter(object_type="node").values_list("kind", flat=True))
    assert kinds.count("node.preflight_failed") == 1
    assert kinds.count("node.draining") == 1


def test_a_start_that_fails_where_others_start_is_the_tasks_own(
    attempt: Attempt, node: ScriptedNode
) -> None:
    node.answers = [PULLED, refusal("start_failed", "no such file: train"), done(state="passed")]

    launch(attempt, node)

    assert states_of(attempt) == ("exited", "finished", "failed")
    assert Task.objects.get().state_detail == "no such file: train"
    assert Node.objects.get().preflight_failures == 0


@pytest.mark.parametrize("code", ["invalid", "not_allowed"])
def test_a_node_that_refuses_its_runtime_is_drained_and_no_task_fails(
    process: Attempt, node: ScriptedNode, code: str
) -> None:
    attempt = process
    for _ in range(3):
        node.answers = [
            refusal(code, "process is not in the list"),
            done(state="failed", detail="no"),
        ]
        launch(attempt, node)
        task = Task.objects.get()
        assert (task.state, task.failures) == ("queued", 0)
        run_pass()
        attempt = Attempt.objects.latest("generation")

    assert Node.objects.get().is_draining


def test_a_refusal_of_one_tasks_own_wishes_is_that_tasks_own(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [refusal("invalid", "volumes: not in the list"), done(state="passed")]

    launch(process, node)

    assert states_of(process) == ("exited", "finished", "failed")
    assert Node.objects.get().preflight_failures == 0


def test_a_runtime_that_breaks_at_the_image_drains_the_node_and_no_task_fails(
    attempt: Attempt, node: ScriptedNode
) -> None:
    for _ in range(3):
        node.answers = [done(state="failed", progress='runtime "nope" not found'), BROKEN]
        launch(attempt, node)
        task = Task.objects.get()
        assert (task.state, task.failures) == ("queued", 0)
        assert "OCI runtime is broken" in task.state_detail
        run_pass()
        attempt = Attempt.objects.latest("generation")

    assert Node.objects.get().is_draining


def test_a_runtime_that_is_away_as_registries_are_is_found_out(
    attempt: Attempt, node: ScriptedNode
) -> None:
    """Docker without its daemon says "connection refused", too."""
    node.answers = [done(state="failed", progress="docker.sock: connection refused"), BROKEN]

    launch(attempt, node)

    assert Node.objects.get().preflight_failures == 1
    assert Task.objects.get().state == "queued"


def test_an_image_that_is_gone_where_containers_start_is_the_tasks_own(
    attempt: Attempt, node: ScriptedNode
) -> None:
    node.answers = [done(state="failed", progress="manifest unknown"), done(state="passed")]

    launch(attempt, node)

    assert states_of(attempt) == ("exited", "finished", "failed")


def test_a_check_that_passes_begins_the_count_again(attempt: Attempt) -> None:
    row = Node.objects.get()
    for detail in ("broken", "broken", "", "broken", "broken"):
        preflight_note(row.pk, detail)

    row.refresh_from_db()
    assert (row.preflight_failures, row.is_draining) == (2, False)


def test_a_node_that_its_preflight_drained_is_resumed_when_it_passes(attempt: Attempt) -> None:
    row = Node.objects.get()
    for detail in ("broken", "broken", "broken", "broken", ""):
        preflight_note(row.pk, detail)

    row.refresh_from_db()
    assert (row.preflight_failures, row.is_draining, row.pause_reason) == (0, False, "")


def test_a_node_that_an_administrator_drained_stays_drained(attempt: Attempt, root: User) -> None:
    row = Node.objects.get()
    for detail in ("broken", "broken", "broken"):
        preflight_note(row.pk, detail)
    node_drain(actor=root, node=row)
    for detail in ("broken", "broken", "broken", "broken", ""):
        preflight_note(row.pk, detail)

    row.refresh_from_db()
    assert row.is_draining


def test_a_preflight_that_passes_ends_neither_a_pause_nor_a_removal(
    attempt: Attempt, root: User
) -> None:
    row = Node.objects.get()
    for detail in ("broken", "broken", "broken"):
        preflight_note(row.pk, detail)
    node_pause(actor=root, node=row, reason="new fans")
    preflight_note(row.pk, "")
    row.refresh_from_db()
    assert (row.is_paused, row.pause_reason, row.is_draining) == (True, "new fans", False)

    for detail in ("broken", "broken", "broken"):
        preflight_note(row.pk, detail)
    node_ask_removal(actor=root, node=row, notes={})
    preflight_note(row.pk, "")

    row.refresh_from_db()
    assert row.removal_asked_at is not None
    assert row.is_draining


def test_resuming_a_drained_node_gives_it_three_more(attempt: Attempt) -> None:
    row = Node.objects.get()
    for _ in range(3):
        preflight_note(row.pk, "broken")
    node_resume(actor=None, node=row)
    preflight_note(row.pk, "broken")

    row.refresh_from_db()
    assert (row.preflight_failures, row.is_draining) == (1, False)


def test_a_registry_that_is_away_is_asked_again(attempt: Attempt, node: ScriptedNode) -> None:
    node.answers = [
        done(state="failed", progress="dial tcp: connection refused"),
        done(state="passed"),
    ]

    launch(attempt, node)

    task = Task.objects.get()
    assert (task.state, task.failures) == ("allocated", 0)
    assert Attempt.objects.get().start_failures == 1


def test_a_node_whose_runtime_is_missing_is_not_added(
    example: Example, alice: User, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    program.chmod(0o755)

    with pytest.raises(NodeFailed) as caught:
        node_add(
            name="black-hole",
            pool=example.h100,
            actor=None,
            transport=Transport.LOCAL,
            runtime=Runtime.DOCKER,
            state_dir=str(tmp_path / "node"),
            environment={"PATH": f"{program.parent}:/usr/bin:/bin"},
        )

    assert "Cannot connect to the Docker daemon" in caught.value.fields["runtime"]
    assert not Node.objects.filter(name="black-hole").exists()


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_node_that_allows_no_plain_process_is_not_added(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    if not is_listed:
        (tmp_path / "allowlist.json").write_text("{}")
        monkeypatch.setenv("RPM_NODE_ALLOWLIST", str(tmp_path / "allowlist.json"))

    with pytest.raises((NodeFailed, BadInput)) as caught:
        node_add(
            name="black-hole",
            pool=example.h100,
            actor=None,
            transport=Transport.LOCAL,
            runtime=Runtime.PROCESS,
            allows_process=not is_listed,
            state_dir=str(tmp_path / "node"),
        )

    # The list of the machine, or the node's own field.
    field = "allows_process" if is_listed else "runtime"
    assert "process" in caught.value.fields[field]
    assert list(caught.value.fields) == [field]
    assert not Node.objects.filter(name="black-hole").exists()


def test_plain_processes_cannot_be_forbidden_on_a_node_that_runs_nothing_else(
    attempt: Attempt, root: User
) -> None:
    node = Node.objects.get()
    Node.objects.update(runtime=Runtime.PROCESS, allows_process=True)
    node.refresh_from_db()

    with pytest.raises(BadInput) as caught:
        node_edit(actor=root, node=node, values={"allows_process": False})

    assert list(caught.value.fields) == ["allows_process"]
