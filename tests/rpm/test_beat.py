"""Beat keeps its schedule whatever the wall clock does."""

import ast
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.beat import Scheduler
from django.conf import settings

from apps.core.notifications import BROADCAST
from rpm.beat import SteadyScheduler
from rpm.celery import app

ROOT = Path(__file__).parents[2]


class Counting(SteadyScheduler):
    """Counts what it would send, without a broker and a file."""

    sent: Counter[str]
    _store: dict[str, Any]
    setup_schedule = Scheduler.setup_schedule

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        self.sent[entry.name] += 1

    @cached_property
    def producer(self) -> Any:
        return None


def test_a_wall_clock_that_jumps_neither_stops_nor_hurries_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Celery("test", set_as_current=False)
    real, jump = app.now, [timedelta(0)]
    monkeypatch.setattr(Celery, "now", lambda _: real() + jump[0])
    steady = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: steady[0])
    app.conf.beat_schedule = {
        "often": {"task": "often", "schedule": timedelta(seconds=5)},
        "seldom": {"task": "seldom", "schedule": timedelta(seconds=20)},
    }
    beat = Counting(app, lazy=True)
    beat._store = {"entries": {}}
    beat.sent = Counter()
    beat.merge_inplace(app.conf.beat_schedule)

    # Two hours ahead for a moment, and behind for another.
    for hours in (0, 0, 2, 2, -2, 0, 0, 0):
        jump[0] = timedelta(hours=hours)
        while (wait_s := beat.tick()) <= 0:
            pass
        assert 0 < wait_s <= 5
        steady[0] += 5

    assert beat.sent == {"often": 8, "seldom": 2}


def test_it_is_the_one_that_beat_uses_and_every_entry_has_an_interval() -> None:
    assert f"{SteadyScheduler.__module__}:SteadyScheduler" == settings.CELERY_BEAT_SCHEDULER
    intervals = [entry["schedule"] for entry in settings.CELERY_BEAT_SCHEDULE.values()]
    assert all(isinstance(one, timedelta) for one in intervals)


def test_every_name_that_beat_or_a_notification_sends_is_registered() -> None:
    app.loader.import_default_modules()
    sent = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    for path in sorted([*ROOT.glob("apps/**/*.py"), *ROOT.glob("rpm/**/*.py")]):
        sent |= _notified(ast.parse(path.read_text(encoding="utf-8")))

    assert {"allocation.run_pass", "execution.poll"} <= sent
    assert sent <= app.tasks.keys() | BROADCAST


def _notified(tree: ast.AST) -> set[str]:
    """The strings given to `notify=`, and the constants whose names begin with NOTIFY_."""
    values = [word.value for word in _keywords(tree) if word.arg == "notify"]
    values += [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id.startswith("NOTIFY_")
        and node.value is not None
    ]
    leaves = [leaf for value in values for leaf in ast.walk(value)]
    return {
        leaf.value
        for leaf in leaves
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
    }


def _keywords(tree: ast.AST) -> Iterator[ast.keyword]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from node.keywords
