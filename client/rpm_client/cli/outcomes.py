"""Following tasks until they end: states, output and the exit code."""

import sys
from typing import TYPE_CHECKING, Any

from rpm_client.cli.output import complain
from rpm_client.logs import ENDED, LogReader
from rpm_client.task_states import task_states
from rpm_client.terminal import plain

if TYPE_CHECKING:
    from rpm_client.client import Client

# Work that ended without a code of its own: it was aborted, lost or never ran.
NO_CODE = 125


def exit_code(client: "Client", task_id: str, state: str) -> int:
    """0 of a completed task; else the code of its last attempt, or 125 where it has none.

    An array has no attempt: 1 where one of its elements failed.
    """
    if state not in ENDED:
        # The attempts of a task that was rejected or dequeued are earlier ones.
        return NO_CODE
    if state == "completed":
        return 0
    attempts = client.attempts(task_id)
    if not attempts and state == "failed":
        return 1
    return int((attempts and attempts[0]["exit_code"]) or NO_CODE)


def wait(client: "Client", task_id: str) -> int:
    """Say each new state until the task has ended, or leaves its queue; its exit code."""
    state = ""
    for task, _ in task_states(client, task_id):
        if task["state"] != state:
            state = task["state"]
            _say_state(task)
    return exit_code(client, task_id, state)


def follow(client: "Client", task_id: str, log: LogReader) -> int:
    """Print what is left of the log until the task has ended; its exit code."""
    for text in log.parts():
        sys.stdout.write(plain(text))
        sys.stdout.flush()
    task = client.task(task_id)
    _say_state(task)
    return exit_code(client, task_id, task["state"])


def _say_state(task: dict[str, Any]) -> None:
    detail = f": {task['state_detail']}" if task["state_detail"] else "."
    complain(f"Task {task['id']} is {task['state']}{detail}")
