"""Functions as tasks: from `submit` to the container's command, its log, and the result.

The commands really run, in processes of this machine. cloudpickle is no package of the tests: what
stands for it pickles functions that can be imported.
"""

import asyncio
import json
import operator
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from apps.policies.models import Policy, Pool
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Attempt, AttemptLog, Task
from rpm_client import (
    AsyncClient,
    Client,
    RefusedError,
    ResourceSettings,
    TaskError,
    TaskFuture,
    UnreachableError,
)
from rpm_client.cli.outcomes import NO_CODE, wait
from rpm_client.functions import function_call, function_result
from tests.people import Example
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db(transaction=True)
LOG_PART = 60_000


@pytest.fixture(autouse=True)
def cloudpickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "cloudpickle.py").write_text("from pickle import dumps\n")
    monkeypatch.syspath_prepend(folder)


def executed(command: list[str], key: str, folder: Path) -> tuple[int, bytes]:
    """The exit code and the output of the command, with the secret as a node gives it."""
    file = folder / "key"
    file.write_text(key)
    done = subprocess.run(
        [sys.executable, *command[1:]],
        env={**os.environ, "RESULT_KEY_FILE": str(file)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=scale_timeout(120),
        check=False,
    )
    return done.returncode, done.stdout


def execute(client: Client, example: Example, future: TaskFuture, folder: Path) -> None:
    """Do what a node would: run the task, keep its log, end it."""
    call = future._call
    assert call is not None
    code, written = executed(client.task(future.id)["command"], call.key, folder)
    attempt = Attempt.objects.create(
        task_id=future.id,
        generation=1,
        queue=example.dev_queue,
        policy=Policy.objects.get(name="Dev"),
        pool=Pool.objects.all()[0],
        allocated_at=timezone.now(),
        exit_code=code,
    )
    for start in range(0, len(written), LOG_PART):
        part = written[start : start + LOG_PART]
        AttemptLog.objects.create(attempt=attempt, offset=start, at=timezone.now(), data=part)
    end = TaskState.FAILED if code else TaskState.COMPLETED
    for state in (TaskState.ALLOCATED, TaskState.RUNNING, end):
        Task.objects.filter(pk=future.id).update(state=state)


def test_a_function_is_sent_runs_and_returns_its_result(
    client: Client, example: Example, tmp_path: Path
) -> None:
    queue = example.dev_queue.name
    settings = ResourceSettings(preemptible=False)

    future = client.submit(
        sorted, [3, 1, 2], kwargs={"reverse": True}, queue=queue, resources=settings, tags=["night"]
    )
    waits = (future.done(), future.explain())
    with pytest.raises(TimeoutError, match="is queued"):
        future.result(timeout_s=0)
    execute(client, example, future, tmp_path)

    task = client.task(future.id)
    assert waits == (False, "No pass has seen it yet.") or waits[0] is False
    assert future.result() == [3, 2, 1]
    assert (task["name"], task["is_preemptible"], task["tags"]) == ("sorted", False, ["night"])
    # Nobody reads the key of the result in REST.
    assert task["secrets"] == {"RESULT_KEY": "********"}


def test_an_exception_comes_back_with_its_traceback(
    client: Client, example: Example, tmp_path: Path
) -> None:
    future = client.submit(operator.truediv, 1, 0, queue=example.dev_queue.name)
    execute(client, example, future, tmp_path)

    with pytest.raises(TaskError, match="ZeroDivisionError: division by zero") as raised:
        future.result()

    assert "Traceback (most recent call last)" in raised.value.traceback_text


def test_pickle_comes_back_only_where_the_caller_asked_for_it(
    client: Client, example: Example, tmp_path: Path
) -> None:
    queue = example.dev_queue.name
    wanted = client.submit(complex, 1, 2, queue=queue, result="pickle")
    other = client.submit(complex, 1, 2, queue=queue)
    for future in (wanted, other):
        execute(client, example, future, tmp_path)

    assert wanted.result() == 1 + 2j
    with pytest.raises(TaskError, match="not JSON serializable"):
        other.result()


def test_a_map_is_one_request_and_each_item_has_its_result(
    client: Client, example: Example, tmp_path: Path
) -> None:
    futures = client.map(len, ["a", "bb"], queue=example.dev_queue.name)
    refused = client.map(len, ["a"], queue=example.dev_queue.name, priority=999)
    for future in futures:
        execute(client, example, future, tmp_path)

    assert [future.result() for future in futures] == [1, 2]
    assert client.map(len, [], queue=example.dev_queue.name) == []
    with pytest.raises(RefusedError):
        refused[0].result()
    assert refused[0].done()


def test_a_function_without_a_result_and_a_dequeued_task_say_how_they_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task: dict[str, Any] = {
        "id": "7",
        "state": "failed",
        "exit_code": 137,
        "state_detail": "Out of memory.",
    }
    part = {"text": "Loading...\n", "next_offset": 0}
    monkeypatch.setattr(Client, "task", lambda *_: task)
    monkeypatch.setattr(Client, "log", lambda *_, **__: part)
    monkeypatch.setattr(Client, "attempts", lambda *_: [{"exit_code": 137}])
    call = function_call(len, ("abc",), {}, kind="json", python="python3")

    with Client("http://127.0.0.1:1", token="x") as client:
        future = TaskFuture(client, "7", call=call)
        with pytest.raises(TaskError, match=r"failed with exit code 137\. Out of memory\.") as died:
            future.result()
        task |= {"state": "draft", "exit_code": None, "state_detail": "dequeued by alice"}
        with pytest.raises(TaskError, match=r"Task 7 is draft\. dequeued by alice"):
            future.result()
        assert (future.done(), wait(client, "7")) == (True, NO_CODE)

    assert died.value.traceback_text == "Loading...\n"


def test_a_map_keeps_its_futures_where_a_later_request_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[Any] = [[{"task": {"id": "1"}, "error": None, "status": 201}]]

    def bulk(client: Client, tasks: list[dict[str, Any]]) -> Any:
        if not answers:
            raise UnreachableError("away")
        return answers.pop()

    monkeypatch.setattr("rpm_client.submission.MANY", 1)
    monkeypatch.setattr(Client, "task_bulk", bulk)

    with Client("http://127.0.0.1:1", token="x") as client:
        futures = client.map(len, ["a", "b", "c"], queue="q")
        with pytest.raises(UnreachableError):
            client.map(len, ["a"], queue="q")

    assert [future.id for future in futures] == ["1", "", ""]
    for future in futures[1:]:
        with pytest.raises(UnreachableError, match="away"):
            future.result()


def test_a_command_ends_with_0_or_its_error(client: Client, example: Example) -> None:
    future = client.submit(["echo", "hello"], queue=example.dev_queue.name)
    future.abort()

    with pytest.raises(TaskError, match="aborted"):
        future.result()
    with pytest.raises(TypeError, match="one list of words"):
        client.submit("echo hello", queue=example.dev_queue.name)


def test_nobody_waits_for_a_task_that_was_rejected(client: Client, example: Example) -> None:
    future = client.submit(["echo", "hello"], queue=example.dev_queue.name)
    Task.objects.filter(pk=future.id).update(state=TaskState.REJECTED, state_detail="Never.")

    assert future.done()
    with pytest.raises(TaskError, match=r"rejected\. Never\."):
        future.result()
    assert list(future.logs()) == []
    assert wait(client, future.id) == NO_CODE


def test_a_result_that_another_wrote_is_not_read(tmp_path: Path) -> None:
    call = function_call(len, ("abc",), {}, kind="pickle", python="python3")
    _, written = executed(call.command, call.key, tmp_path)
    _, forged = executed(call.command, "another key", tmp_path)
    true, false = written.decode(), forged.decode()

    assert function_result(call, f"before{true}{false}after") == 3
    for log in ("", false, true.replace("::rpm-result pickle", "::rpm-result json"), true[:-8]):
        with pytest.raises(TaskError, match="no result that is whole"):
            function_result(call, log)


def test_what_is_too_large_is_refused_with_the_bound(tmp_path: Path) -> None:
    data = os.urandom(900_000)
    with pytest.raises(ValueError, match=r"at most 1000000 can be sent: put data on a volume"):
        function_call(len, (data,), {}, kind="json", python="python3")
    large = function_call(os.urandom, (4_000_000,), {}, kind="pickle", python="python3")
    code, written = executed(large.command, large.key, tmp_path)

    assert code == 1
    with pytest.raises(TaskError, match="at most 4000000 can be returned: write it to a volume"):
        function_result(large, written.decode())
    with pytest.raises(ValueError, match="give json or pickle"):
        function_call(len, (), {}, kind="yaml", python="python3")


def test_resources_are_fields_of_a_task() -> None:
    settings = ResourceSettings(gpu_count=2, cpu_count=8, memory="16G", preemptible=True)

    assert settings.fields() == {
        "request": {"gpu": 2, "cpu": 8, "memory_mb": "16G"},
        "is_preemptible": True,
    }
    assert ResourceSettings().fields() == {}


def test_the_asynchronous_client_awaits_the_same_methods(
    access: dict[str, str], example: Example
) -> None:
    async def enqueued() -> tuple[Any, Any]:
        async with AsyncClient(
            access["RPM_URL"], key=access["RPM_KEY"], secret=access["RPM_SECRET"]
        ) as client:
            future = await client.submit(["true"], queue=example.dev_queue.name)
            return future.id, await client.tasks()

    task_id, tasks = asyncio.run(enqueued())

    assert [task["id"] for task in tasks] == [task_id]


def test_the_runner_needs_nothing_of_the_client(tmp_path: Path) -> None:
    call = function_call(json.loads, ('{"a": 1}',), {}, kind="json", python="python3")

    assert "rpm_client" not in call.command[2]
    assert function_result(call, executed(call.command, call.key, tmp_path)[1].decode()) == {"a": 1}
