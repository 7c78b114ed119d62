"""Waiting for a task, with requests that become rarer the longer it takes."""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep
from typing import TYPE_CHECKING, Any

from rpm_client.logs import OVER

if TYPE_CHECKING:
    from rpm_client.client import Client

FIRST_S = 0.5
LAST_S = 5.0


def task_states(client: Client, task_id: str) -> Iterator[tuple[dict[str, Any], float]]:
    """The task again and again until it is over, and after how many seconds the next comes."""
    pause, state = FIRST_S, ""
    while True:
        task = client.task(task_id)
        if task["state"] != state:
            state, pause = task["state"], FIRST_S
        yield task, pause
        if state in OVER:
            return
        sleep(pause)
        pause = min(pause * 1.5, LAST_S)
