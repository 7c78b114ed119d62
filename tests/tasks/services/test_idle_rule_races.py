"""Idle tasks that several decide about at once: real threads on PostgreSQL."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connections

from apps.accounts.models import User
from apps.core.errors import Conflict
from apps.events.models import AuditEntry, Event
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import (
    Attempt,
    IdleExemption,
    IdleWarning,
)
from apps.tasks.services.attempts.ends import ask_to_stop
from apps.tasks.services.attempts.records import attempt_lock
from apps.tasks.services.idle_rules import idle_rules_apply, task_set_idle_exemption
from tests.services.locks import waiting_for_locks
from tests.services.ports import wait_until
from tests.tasks.services.idle_task import MINUTE, STOP, WARN, IdleTask, idle, node, queue

__all__ = ["idle", "node", "queue"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"),
        reason="one writer at a time needs no lock",
    ),
]


def test_two_runs_at_once_warn_and_stop_once(
    idle: IdleTask, monkeypatch: pytest.MonkeyPatch
) -> None:

    def both() -> None:
        found = threading.Barrier(2)

        def lock(attempt_id: UUID) -> Attempt:
            found.wait(20)
            return attempt_lock(attempt_id)

        def run() -> None:
            try:
                idle_rules_apply(now=idle.at)
            finally:
                connections.close_all()

        monkeypatch.setattr("apps.tasks.services.idle_rules.attempt_lock", lock)
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        monkeypatch.undo()

    idle.minutes(WARN - 1)
    idle.at += MINUTE
    idle.sample(0)
    both()
    assert (IdleWarning.objects.count(), idle.kinds()) == (1, ["idle_warning"])

    idle.minutes(STOP - WARN - 1)
    idle.at += MINUTE
    idle.sample(0)
    both()
    assert Event.objects.filter(kind="task.stopping").count() == 1
    assert AuditEntry.objects.filter(verb="task.stopped_idle").count() == 1


def test_of_an_exemption_and_a_stop_at_once_the_first_one_counts(
    idle: IdleTask, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle.minutes(STOP - 1)
    idle.at += MINUTE
    idle.sample(0)
    about_to_stop, exempting = threading.Event(), threading.Event()
    refused: list[Conflict] = []

    def slow(*given: Any, **named: Any) -> None:
        about_to_stop.set()
        assert exempting.wait(20)
        wait_until(lambda: waiting_for_locks() > 0, what="the exemption waits for the stop")
        ask_to_stop(*given, **named)

    def run(work: Callable[[], object]) -> threading.Thread:
        def call() -> None:
            try:
                work()
            except Conflict as error:
                refused.append(error)
            finally:
                connections.close_all()

        thread = threading.Thread(target=call)
        thread.start()
        return thread

    def exempt() -> None:
        exempting.set()
        task_set_idle_exemption(actor=root, task=idle.task, is_exempt=True)

    monkeypatch.setattr("apps.tasks.services.idle_rules.ask_to_stop", slow)
    stop = run(lambda: idle_rules_apply(now=idle.at))
    assert about_to_stop.wait(20)
    other = run(exempt)
    for thread in (stop, other):
        thread.join(30)
        assert not thread.is_alive()

    assert (idle.state, len(refused)) == (TaskState.STOPPING, 1)
    assert not IdleExemption.objects.exists()
