"""Launching and stopping one member, whatever the node answers or does not answer."""

from typing import Any
from uuid import uuid4

import msgspec
import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.core import keyring
from apps.execution.client import NodeClient
from apps.execution.services import member_launch
from apps.execution.services.member_launch import member_stop
from apps.execution.transport.base import ExchangeFailed, Unreachable
from apps.nodes.models import Node
from apps.policies.models import Profile, Queue
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.enqueue.task_secrets import seal_secrets
from apps.tasks.services.stop import task_abort
from apps.vaults.services.vaults import vault_create
from tests.execution.services.scripted_node import (
    Answer,
    ScriptedNode,
    done,
    launch,
    refusal,
    states_of,
)


def test_a_launch_tells_the_node_everything_and_the_task_runs(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [done(state="running")]

    launch(process, node)

    assert states_of(process) == ("running", "running", "running")
    (requests,) = node.requests
    assert requests["task_id"] == str(process.task_id)
    assert (requests["generation"], requests["rank"], requests["boot_id"]) == (1, 0, "boot")
    devices = Member.objects.get().devices
    assert [one["uuid"] for one in node.specs()[0]["devices"]] == [
        f"GPU-b1-{index}" for index, _ in devices
    ]


def test_a_stored_spec_that_is_none_ends_its_task_with_the_reason(
    process: Attempt, node: ScriptedNode
) -> None:
    Task.objects.update(content={"command": 7})

    launch(process, node)

    assert node.requests == []
    process.refresh_from_db()
    assert process.detail == "command must be a list, not a whole number."


def test_secrets_reach_the_node_and_nothing_else(process: Attempt, node: ScriptedNode) -> None:
    Task.objects.update(secrets=seal_secrets({"KEY": "geheim\n"}, Task.objects.get()))
    node.answers = [done(state="running")]

    launch(process, node)

    (spec,) = node.specs()
    assert spec["secrets"] == {"KEY": "geheim\n"}
    sent = {**node.requests[0], "spec": {**spec, "secrets": {}}}
    assert b"geheim" not in msgspec.json.encode(sent)


def test_secrets_whose_key_is_gone_end_the_attempt_with_words(
    process: Attempt, node: ScriptedNode, settings: Any
) -> None:
    Task.objects.update(secrets=seal_secrets({"KEY": "geheim"}, Task.objects.get()))
    settings.RPM_SECRET_KEYS = [keyring.new_key()]

    launch(process, node)

    assert node.requests == []
    process.refresh_from_db()
    assert "key ring" in process.detail


def test_a_secret_of_another_task_ends_the_attempt_with_words(
    process: Attempt, node: ScriptedNode, alice: User
) -> None:
    other = Task(owner=alice)
    Task.objects.update(secrets={"KEY": seal_secrets({"KEY": "geheim"}, other)["KEY"]})

    launch(process, node)

    assert node.requests == []
    assert states_of(process) == ("exited", "finished", "failed")
    process.refresh_from_db()
    assert "tasks.task.secrets KEY cannot be read" in process.detail
    assert "geheim" not in process.detail


def test_what_the_profile_allows_beyond_the_usual_is_asked_of_the_node(
    attempt: Attempt, node: ScriptedNode
) -> None:
    Profile.objects.update(extra_permissions=["root", "capability:IPC_LOCK", "device:/dev/fuse"])
    node.answers = [done(state="present", progress=""), done(state="running")]

    launch(attempt, node)

    (spec,) = node.specs()
    assert (spec["uid"], spec["gid"], spec["allow_root"]) == (0, 0, True)
    assert (spec["capabilities"], spec["device_paths"]) == (["IPC_LOCK"], ["/dev/fuse"])


def test_a_plain_process_is_never_root_by_its_profile_and_apart_from_other_people(
    process: Attempt, node: ScriptedNode, alice: User
) -> None:
    Profile.objects.update(extra_permissions=["root"])
    node.answers = [done(state="running")]

    launch(process, node)

    own = 2_000_000_000 + alice.pk
    assert (node.specs()[0]["uid"], node.specs()[0]["gid"]) == (own, own)


@pytest.mark.parametrize(
    ("runtime", "account", "first"),
    [("podman", 0, 2_000_000_000), ("podman", 1000, 10_000), ("docker", 1000, 2_000_000_000)],
)
def test_a_container_of_a_person_without_a_unix_id_is_that_persons_alone(
    attempt: Attempt, node: ScriptedNode, alice: User, runtime: str, account: int, first: int
) -> None:
    Node.objects.update(runtime=runtime, report={"account": account})
    node.answers = [done(state="present", progress=""), done(state="running")]

    launch(attempt, node)

    own = first + alice.pk
    assert (node.specs()[0]["uid"], node.specs()[0]["gid"]) == (own, own)


def test_a_launch_that_is_not_wanted_any_more_is_never_sent(
    process: Attempt, node: ScriptedNode, alice: User
) -> None:
    task_abort(actor=alice, task=Task.objects.get())

    launch(process, node)

    assert node.requests == []


def test_a_container_that_cannot_start_fails_the_task_with_the_nodes_words(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [refusal("start_failed", "no such file: train"), done(state="passed")]

    launch(process, node)

    assert states_of(process) == ("exited", "finished", "failed")
    assert Task.objects.get().state_detail == "no such file: train"


@pytest.mark.parametrize("code", ["late", "older_alive", "other_boot"])
def test_a_refusal_that_passes_is_tried_again_later(
    process: Attempt, node: ScriptedNode, code: str
) -> None:
    node.answers = [refusal(code)]

    launch(process, node)

    # An earlier launch may still be on its way: only a stop could make sure that it is not.
    assert states_of(process) == ("starting", "starting", "allocated")
    assert process.not_before is not None
    assert process.not_before > timezone.now()
    assert process.start_failures == 1


def test_a_refusal_that_does_not_pass_fails_the_task(process: Attempt, node: ScriptedNode) -> None:
    node.answers = [
        refusal("not_allowed", "plain processes are not allowed"),
        done(state="passed"),
    ]

    launch(process, node)

    assert states_of(process) == ("exited", "finished", "failed")
    assert "plain processes are not allowed" in Task.objects.get().state_detail


def test_a_launch_that_was_surely_not_sent_is_tried_again(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [Unreachable("no route")]

    launch(process, node)

    assert states_of(process) == ("allocated", "allocated", "allocated")


def test_a_launch_that_may_have_arrived_is_sent_again_and_starts_once(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [ExchangeFailed("cut"), done(state="running")]

    launch(process, node)
    assert states_of(process) == ("starting", "starting", "allocated")
    launch(process, node)

    assert node.verbs() == ["launch", "launch"]
    assert node.requests[0]["generation"] == node.requests[1]["generation"]
    assert states_of(process) == ("running", "running", "running")


def test_who_does_not_serve_the_node_any_more_writes_nothing(
    process: Attempt, node: ScriptedNode
) -> None:
    def taken() -> dict[str, object]:
        Node.objects.update(served_by="another")
        return refusal("start_failed", "no such file")

    node.answers = [taken, done(state="failed", detail="no such file")]

    launch(process, node)

    assert states_of(process) == ("starting", "starting", "allocated")
    assert Node.objects.get().preflight_failures == 0
    launch(process, node)
    assert node.verbs() == ["launch", "preflight"]


@pytest.mark.parametrize(("policy", "want"), [("wait", False), ("requeue", True), ("fail", True)])
def test_a_lease_is_written_down_before_it_is_granted(
    process: Attempt, node: ScriptedNode, policy: str, *, want: bool
) -> None:
    Queue.objects.update(on_node_loss=policy)
    written: list[float | None] = []

    def note() -> dict[str, object]:
        written.append(Member.objects.get().lease_until_s)
        return done(state="running")

    node.answers = [note]

    launch(process, node)

    (requests,) = node.requests
    assert written == [requests["lease_until_s"]]
    assert (written[0] is not None) == want
    assert Member.objects.get().boot_id == "boot"


def test_a_lease_that_was_granted_once_is_never_shortened_by_a_second_launch(
    process: Attempt, node: ScriptedNode
) -> None:
    Queue.objects.update(on_node_loss="requeue")
    node.answers = [ExchangeFailed("cut"), done(state="running")]
    launch(process, node)
    first = Member.objects.get().lease_until_s
    assert first is not None
    Member.objects.update(lease_until_s=first + 5000)
    Queue.objects.update(on_node_loss="wait")

    launch(process, node)

    assert node.requests[1]["lease_until_s"] == first + 5000


def test_a_start_that_fails_again_and_again_fails_with_the_nodes_words(
    process: Attempt, node: ScriptedNode
) -> None:
    for _ in range(member_launch.START_TRIES):
        node.answers = [refusal("late", "its disk is full")]
        launch(process, node)

    states = states_of(process)
    assert states == ("starting", "stopping", "stopping")
    node.answers = [done(state="absent")]
    member = Member.objects.select_related("attempt__queue").get()
    member_stop(member=member, client=NodeClient(node, "ours"), token="t")
    assert states_of(process) == ("exited", "finished", "failed")
    assert "its disk is full" in Task.objects.get().state_detail


@pytest.mark.parametrize(
    ("rows", "changes", "want"),
    [
        pytest.param(Task, {"content": {"command": 7}}, "failed", id="its spec is none"),
        pytest.param(Attempt, {"vaults": [[str(uuid4()), 1]]}, "queued", id="its vault is gone"),
    ],
)
def test_what_may_have_started_and_may_not_any_more_ends_when_its_node_has_stopped_it(
    process: Attempt, node: ScriptedNode, rows: Any, changes: dict[str, Any], want: str
) -> None:
    node.answers = [ExchangeFailed("cut"), done(state="absent")]
    launch(process, node)
    rows.objects.update(**changes)

    launch(process, node)

    assert states_of(process) == ("starting", "stopping", "stopping")
    member = Member.objects.select_related("attempt__queue").get(released_at__isnull=True)
    member_stop(member=member, client=NodeClient(node, "ours"), token="t")
    assert node.verbs() == ["launch", "stop"]
    assert states_of(process) == ("exited", "finished", want)


def test_an_answer_that_makes_no_sense_counts_as_none(process: Attempt, node: ScriptedNode) -> None:
    node.answers = [done(state="dancing")]

    launch(process, node)

    assert states_of(process) == ("starting", "starting", "allocated")


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(done(state="stopping"), "stopping", id="it stops"),
        pytest.param(done(state="exited"), "stopping", id="its end comes with a report"),
        pytest.param(done(state="absent"), "aborted", id="it never came, and cannot any more"),
        pytest.param(Unreachable("no route"), "stopping", id="nobody answers"),
    ],
)
def test_a_stop(
    process: Attempt, node: ScriptedNode, alice: User, answer: Answer, want: str
) -> None:
    node.answers = [ExchangeFailed("cut"), answer]
    launch(process, node)
    task_abort(actor=alice, task=Task.objects.get())
    member = Member.objects.select_related("attempt__queue").get()

    member_stop(member=member, client=NodeClient(node, "ours"), token="t")

    assert node.verbs() == ["launch", "stop"]
    assert node.requests[1]["grace_s"] == 30.0
    assert states_of(process)[2] == want


def test_a_member_that_a_reboot_cleared_away_is_lost_and_its_task_runs_again(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [refusal("ended", "this member has ended or was stopped before it came")]

    launch(process, node)

    assert states_of(process) == ("exited", "lost", "queued")
    assert Task.objects.get().failures == 0


def test_a_node_that_knows_a_later_admission_lets_the_task_wait_for_the_next(
    process: Attempt, node: ScriptedNode
) -> None:
    node.answers = [refusal("fenced", "generation 3 is known here")]

    launch(process, node)

    assert states_of(process) == ("exited", "finished", "queued")
    assert Task.objects.get().failures == 0


def test_vaults_of_the_owner_reach_the_node_and_are_noted(
    process: Attempt, node: ScriptedNode
) -> None:
    owner = process.task.owner
    text = "environment.FROM_VAULT = yes, secrets.KEY = geheim, lr = 0.1"
    vault = vault_create(actor=owner, name="mine", text=text, is_active=True)
    node.answers = [done(state="running")]

    launch(process, node)

    (spec,) = node.specs()
    assert spec["environment"]["FROM_VAULT"] == "yes"
    assert spec["secrets"] == {"KEY": "geheim", "RPM_VAULT": '{\n "lr": 0.1\n}'}
    assert b"geheim" not in msgspec.json.encode({**spec, "secrets": {}})
    process.refresh_from_db()
    assert process.vaults == [[str(vault.pk), 1]]


def test_vaults_that_do_not_fit_end_the_attempt_with_words(
    process: Attempt, node: ScriptedNode
) -> None:
    for number in range(9):
        text = f"k{number} = {'x' * 60_000}"
        vault_create(actor=process.task.owner, name=f"v{number}", text=text, is_active=True)

    launch(process, node)

    assert node.requests == []
    process.refresh_from_db()
    assert "bring a file of" in process.detail
