"""No command of a person runs under the account of the control plane."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from apps.execution import own_account
from apps.execution.node.clocks import boot_id
from apps.execution.services.node_registration import NodeFailed, node_add
from apps.nodes.models import Node, Runtime, Transport
from apps.tasks.models import Attempt, Task
from apps.tasks.services.enqueue.task_secrets import seal_secrets
from tests.execution.services.scripted_node import ScriptedNode, done, launch, states_of
from tests.people import Example
from tests.services.sshd import kill_helpers

OWN = 4711
CALLBACK = {"language": "bash", "script": "cat key-ring", "timeout_s": 5}


@pytest.fixture(autouse=True)
def as_shipped(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control plane of an ordinary user."""
    settings.ALLOW_OWN_ACCOUNT = False
    monkeypatch.setattr(os, "geteuid", lambda: OWN)


def put(node_of: Attempt, *, account: int = OWN, **fields: Any) -> None:
    node = node_of.members.select_related("node").get().node
    assert node is not None
    fields = {"transport": Transport.LOCAL, "report": {"account": account}} | fields
    Node.objects.filter(pk=node.pk).update(**fields)


def everything_of_a_person() -> None:
    task = Task.objects.get()
    task.content = {
        "command": ["sh", "-c", "cat key-ring"],
        "environment": {"ENV": "/tmp/mine", "PATH": "/tmp"},
        "working_dir": "/tmp",
        "abort_callback": CALLBACK,
    }
    task.secrets = seal_secrets({"KEY": "geheim"}, task)
    task.save()


@pytest.mark.parametrize(
    "fields",
    [{}, {"transport": Transport.SSH, "boot_id": boot_id()}],
    ids=["local", "this machine over SSH"],
)
def test_on_simulated_devices_a_script_of_ours_runs_in_place_of_the_command(
    process: Attempt, node: ScriptedNode, fields: dict[str, Any]
) -> None:
    put(process, is_simulated=True, **fields)
    everything_of_a_person()
    node.answers = [done(state="running")]

    launch(process, node)

    (requests,) = node.specs()
    words = "sh -c 'cat key-ring'"
    assert requests["command"] == ["/bin/sh", "-c", own_account.SCRIPT, "rpm", "30", words]
    assert {name for name in requests["environment"] if not name.startswith("RPM_")} == set()
    assert (requests["secrets"], requests["working_dir"], requests["volumes"]) == ({}, "", [])
    assert requests["abort_callback"] is None


def test_without_simulated_devices_nothing_runs_and_the_task_says_why(
    process: Attempt, node: ScriptedNode
) -> None:
    put(process)

    launch(process, node)

    assert node.requests == []
    process.refresh_from_db()
    assert "RPM_ALLOW_OWN_ACCOUNT" in process.detail


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"account": OWN + 1}, id="another account"),
        pytest.param({"account": 0}, id="root, which gives each person an account"),
        pytest.param({"transport": Transport.SSH, "boot_id": "other"}, id="another machine"),
        pytest.param({"runtime": Runtime.PODMAN}, id="containers"),
    ],
)
def test_elsewhere_commands_run(
    process: Attempt, node: ScriptedNode, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(process, **fields)
    node.answers = [done(state="present", progress="")] if "runtime" in fields else []
    node.answers.append(done(state="running"))

    launch(process, node)

    assert states_of(process)[0] == "running"


def test_root_gives_a_person_who_is_the_control_planes_account_nothing_either(
    process: Attempt, node: ScriptedNode
) -> None:
    put(process, account=0, is_simulated=True)
    process.task.owner.unix_uid = OWN
    process.task.owner.save()
    node.answers = [done(state="running")]

    launch(process, node)

    assert node.specs()[0]["command"][2] == own_account.SCRIPT


def test_an_installation_may_allow_it(process: Attempt, node: ScriptedNode, settings: Any) -> None:
    settings.ALLOW_OWN_ACCOUNT = True
    put(process)
    node.answers = [done(state="running")]

    launch(process, node)

    assert states_of(process)[0] == "running"


@pytest.mark.parametrize(
    ("text", "want"), [("45", 45), ("", 30), ("-1", 30), ("9" * 9, 3600), ("$(id)", 30), ("²", 30)]
)
def test_how_long_simulated_work_lasts(text: str, want: int) -> None:
    assert own_account._seconds(text) == want


def test_the_script_repeats_a_command_without_running_it(tmp_path: Path) -> None:
    command = f"$(touch {tmp_path}/a) `touch {tmp_path}/b`; touch {tmp_path}/c"

    done_ = subprocess.run(
        ["/bin/sh", "-c", own_account.SCRIPT, "rpm", "0", command],
        env={"RPM_DEVICES": "SIM-1-0"},
        capture_output=True,
        check=True,
        text=True,
    )

    assert command in done_.stdout
    assert "I have SIM-1-0\n" in done_.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.django_db
def test_a_node_without_simulated_devices_is_not_added_under_the_own_account(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    problem = own_account.own_account_problem
    # Its helper runs as the user who runs the tests.
    monkeypatch.setattr(
        "apps.execution.services.node_registration.own_account_problem",
        lambda node, _: problem(node, os.geteuid() or OWN),
    )
    monkeypatch.setattr(own_account, "is_own_account", lambda *_: True)

    try:
        with pytest.raises(NodeFailed, match="RPM_ALLOW_OWN_ACCOUNT") as caught:
            node_add(
                name="here",
                pool=example.h100,
                actor=None,
                transport=Transport.LOCAL,
                runtime=Runtime.PROCESS,
                allows_process=True,
                state_dir=str(tmp_path / "node"),
            )
    finally:
        kill_helpers(str(tmp_path / "node"))

    assert list(caught.value.fields) == ["runtime"]
    assert not Node.objects.exists()
