"""`rpmctl enqueue` and `run`: options, files, scripts and exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone
from typer.main import get_command

from apps.policies.models import Policy, Pool, Queue
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Attempt, AttemptLog, Task, TaskDependency
from rpm_client import Client
from rpm_client.cli import outcomes
from rpm_client.cli.app import app
from rpm_client.cli.task_options import OPTIONS
from tests.client.conftest import ctl
from tests.people import Example

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.django_db(transaction=True)


def schema() -> dict[str, Any]:
    found = yaml.load((ROOT / "docs" / "openapi.yaml").read_text(), yaml.CSafeLoader)
    fields: dict[str, Any] = found["components"]["schemas"]["TaskSpecRequest"]["properties"]
    return fields


def test_every_field_of_a_task_is_an_option() -> None:
    fields = schema()
    root: Any = get_command(app)
    enqueue, run = root.commands["enqueue"], root.commands["run"]

    missing = [
        f"rpmctl enqueue has no option for the field {name!r} of a task: add it to OPTIONS, "
        "_options and described in client/rpm_client/cli/task_options.py."
        for name in fields
        if name not in OPTIONS
    ]
    assert missing == []
    assert [name for name in OPTIONS if name not in fields] == []
    for command in (enqueue, run):
        known = {option for parameter in command.params for option in parameter.opts}
        assert [one for options in OPTIONS.values() for one in options if one not in known] == []


def test_every_option_reaches_its_field(
    access: dict[str, str], example: Example, tmp_path: Path
) -> None:
    password, script = tmp_path / "password", tmp_path / "abort.sh"
    password.write_text("hidden\n")
    script.write_text("echo saved")

    made = ctl(
        {**access, "HERE": "from here"},
        *("enqueue", "--name", "all", "--image", "busybox", "--env", "A=b=c", "--env", "HERE"),
        *("--secret", f"PASSWORD=@{password}", "--working-dir", "/data", "--gpus", "2"),
        *("--request", "cpu=4", "--replicas", "2", "--volume", "one", "--volume", "two"),
        *("--priority", "-3", "--no-preemptible", "--no-restartable", "--time-limit", "90m"),
        *("--retries", "2", "--checkpoint-volume", "one", "--abort-script", str(script)),
        *(
            "--abort-language",
            "bash",
            "--abort-timeout",
            "2m",
            "--tag",
            "night",
            "--hold",
            "--array",
            "0-9%3",
            "--json",
        ),
        *("--", "sh", "-c", "ls --all"),
    )

    assert made.exit_code == 0, made.output
    task = json.loads(made.stdout)
    wanted = {
        "name": "all",
        "image": "docker.io/library/busybox:latest",
        "command": ["sh", "-c", "ls --all"],
        "environment": {"A": "b=c", "HERE": "from here"},
        "secrets": {"PASSWORD": "********"},
        "working_dir": "/data",
        "request": {"cpu": "4", "gpu": "2"},
        "replicas": 2,
        "volumes": ["one", "two"],
        "priority": -3,
        "is_preemptible": False,
        "is_restartable": False,
        "time_limit_s": 5400,
        "retries": 2,
        "checkpoint_volume": "one",
        "abort_callback": {"script": "echo saved", "language": "bash", "timeout_s": 120},
        "tags": ["night"],
        "hold": True,
        "array": {"size": 10, "limit": 3},
    }
    assert {name: task[name] for name in wanted} == wanted


def test_a_task_starts_after_others(
    access: dict[str, str], example: Example, tmp_path: Path
) -> None:
    queue = ("enqueue", "--queue", example.dev_queue.name)
    first, second = (ctl(access, *queue, "--", "true").stdout.strip() for _ in range(2))
    script, file = tmp_path / "train.sh", tmp_path / "task.yaml"
    script.write_text(f"#RPM --after {first}:any\ntrue\n")
    file.write_text(f"command: ['true']\nafter:\n- task: {second}\n  when: failed\n")

    made = [
        ctl(access, *queue, "--after", f"{first}:failed", "--after", second, "--", "true"),
        ctl(access, *queue, str(script)),
        ctl(access, *queue, "--file", str(file)),
    ]
    wrong = ctl(access, *queue, "--after", f"{first}:soon", "--", "true")
    draft = ctl(access, "enqueue", "--after", first, "--", "true")

    edges = TaskDependency.objects.values_list("task", "after", "when").order_by("pk")
    ids = [one.stdout.strip() for one in made]
    assert [tuple(map(str, edge)) for edge in edges] == [
        (ids[0], first, "failed"),
        (ids[0], second, "ok"),
        (ids[1], first, "any"),
        (ids[2], second, "failed"),
    ]
    assert "after.0.when must be one of ok, failed, any" in str(wrong.exception)
    assert "after is for tasks in a queue" in str(draft.exception)


def test_a_file_is_a_task_and_options_count_over_it(
    access: dict[str, str], example: Example, tmp_path: Path
) -> None:
    file = tmp_path / "task.yaml"
    file.write_text("name: of the file\npriority: -5\ncommand: [sleep, '3']\n")

    made = ctl(access, "enqueue", "-f", str(file), "--priority", "-2", "--json")
    piped = ctl(access, "enqueue", "-f", "-", "--json", given='{"name": "piped"}')
    unknown = ctl(access, "enqueue", "-f", "-", given="name: x\ncomand: [ls]\n")
    wrong = [
        ctl(access, "enqueue", "-f", "-", given="- name: x"),
        ctl(access, "enqueue", "-f", "-", given="a: [b"),
        ctl(access, "enqueue", "-f", str(tmp_path / "nothing")),
    ]

    task = json.loads(made.stdout)
    assert (task["name"], task["priority"], task["command"]) == ("of the file", -2, ["sleep", "3"])
    assert json.loads(piped.stdout)["name"] == "piped"
    assert "did you mean 'command'" in str(unknown.exception)
    assert [one.exit_code for one in wrong] == [2, 2, 2]


def test_a_script_brings_its_options_and_its_arguments(
    access: dict[str, str], example: Example, tmp_path: Path
) -> None:
    script = tmp_path / "train.sh"
    text = (
        "#!/bin/bash\n# Trains.\n"
        f"#RPM --queue {example.dev_queue.name} --priority -2\n"
        '#RPM --env A=1 --tag "all night"  # why\n\necho "$@"\n'
    )
    script.write_text(text)

    words = ("--priority", "-4", "--env", "B=2", "--json", str(script), "--epochs", "3")
    made = ctl(access, "enqueue", *words)

    assert made.exit_code == 0, made.output
    task = json.loads(made.stdout)
    assert task["command"] == ["/bin/bash", "-c", text, "train.sh", "--epochs", "3"]
    assert (task["name"], task["queue"], task["priority"]) == (
        "train.sh",
        example.dev_queue.name,
        -4,
    )
    assert (task["environment"], task["tags"]) == ({"A": "1", "B": "2"}, ["all night"])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("#!/bin/sh\n#RPM --gpuz 2\n", "line 2: No such option: --gpuz", id="option"),
        pytest.param("#RPM --tag x\n#RPM --replicas two\n", "line 2:", id="value"),
        pytest.param("#RPM --time-limit soon\n", "'soon' is no duration", id="duration"),
        pytest.param("#RPM ls\n", "line 1: 'ls' is no option", id="word"),
        pytest.param('#RPM --name "x\n', "line 1: No closing quotation", id="quotation"),
        pytest.param("ls\n#RPM --gpus 2\n", "line 2: #RPM stands after", id="late"),
        pytest.param("#!/usr/bin/perl\n", "only scripts of a shell or of Python", id="language"),
        pytest.param(f"#{'x' * 140_000}\n", "at most 131071 can be sent", id="size"),
    ],
)
def test_a_mistake_in_a_script_has_its_line(text: str, want: str, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(text)

    done = ctl({}, "enqueue", str(script))

    assert done.exit_code == 2
    # The message is in a box as wide as the terminal.
    words = " ".join(done.output.replace("│", " ").split())
    assert want in words


def test_a_script_of_python_and_one_that_is_not_there(
    access: dict[str, str], example: Example, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("#!/usr/bin/env python3\nprint(1)\n")

    made = json.loads(ctl(access, "enqueue", "--json", str(script), "x").stdout)
    nothing = ctl(access, "enqueue", "sleep", "3")

    assert made["command"][:3] == ["/usr/bin/env", "python3", "-c"]
    assert made["command"][4:] == ["x"]
    assert nothing.exit_code == 2
    assert "cannot be read" in nothing.output


def ends(monkeypatch: pytest.MonkeyPatch, state: TaskState, code: int | None) -> None:
    """The first time that a command waits, the task ends after it has written a line."""

    def end(task_id: str) -> None:
        task = Task.objects.get(pk=task_id)
        attempt = Attempt.objects.create(
            task=task,
            generation=1,
            queue=Queue.objects.get(pk=task.queue_id or 0),
            policy=Policy.objects.get(name="Dev"),
            pool=Pool.objects.all()[0],
            allocated_at=timezone.now(),
            exit_code=code,
        )
        AttemptLog.objects.create(attempt=attempt, offset=0, at=timezone.now(), data=b"hello\n")
        for step in (TaskState.ALLOCATED, TaskState.RUNNING, state):
            Task.objects.filter(pk=task_id).update(state=step)

    def pause(seconds: float) -> None:
        end(str(Task.objects.exclude(state=state).values_list("pk", flat=True)[0]))

    monkeypatch.setattr("rpm_client.logs.sleep", pause)
    monkeypatch.setattr("rpm_client.task_states.sleep", pause)


@pytest.mark.parametrize(
    ("state", "code", "want"),
    [
        (TaskState.COMPLETED, 0, 0),
        (TaskState.FAILED, 7, 7),
        (TaskState.FAILED, None, outcomes.NO_CODE),
    ],
)
def test_a_run_prints_the_output_and_passes_the_exit_code_on(
    access: dict[str, str],
    example: Example,
    monkeypatch: pytest.MonkeyPatch,
    state: TaskState,
    code: int | None,
    want: int,
) -> None:
    queue = example.dev_queue.name
    ends(monkeypatch, state, code)

    done = ctl(access, "run", "-q", queue, "--", "echo", "hello")
    waited = ctl(access, "enqueue", "--wait", "-q", queue, "--", "echo", "hello")

    assert (done.exit_code, done.stdout) == (want, "hello\n"), done.output
    assert f"is {state.value}." in done.stderr
    assert waited.exit_code == want
    assert ctl(access, "run", "--", "ls").exit_code == 2


@pytest.mark.parametrize("is_aborted", [True, False])
def test_ctrl_c_asks_whether_the_task_is_aborted(
    access: dict[str, str],
    example: Example,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_aborted: bool,
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    def log(*_: object, offset: int | None = None, **_named: object) -> dict[str, Any]:
        return {"text": "" if offset else "line 1\n", "next_offset": 7, "generation": 1}

    monkeypatch.setattr("rpm_client.logs.sleep", interrupt)
    monkeypatch.setattr(Client, "log", log)
    monkeypatch.setattr("rpm_client.cli.submit.is_terminal", lambda: True)

    done = ctl(
        access,
        *("run", "-q", example.dev_queue.name, "--", "ls"),
        given="y\n" if is_aborted else "n\n",
    )

    task = next(client.tasks())
    assert "Abort the task?" in done.stderr
    # Once, although it is followed again until it has stopped.
    assert done.stdout.count("line 1") == 1
    assert (task["state"], done.exit_code) == (
        ("aborted", outcomes.NO_CODE) if is_aborted else ("queued", 130)
    )
    if not is_aborted:
        assert f"rpmctl abort {task['id']}" in done.stderr
