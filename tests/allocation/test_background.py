"""Passes follow hints, and go on where hints get lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from celery import Celery, current_app
from django.conf import settings
from django.db import connection

from apps.allocation.background import pass_catch_up
from apps.allocation.models import PassState
from apps.allocation.services import run_pass
from tests.people import Example
from tests.services.ports import stop, wait_until
from tests.services.silent_proxy import SilentProxy, silent_proxy

ROOT = Path(__file__).resolve().parents[2]


def passes() -> int:
    return PassState.objects.values_list("passes", flat=True).first() or 0


@pytest.mark.django_db
def test_a_worker_makes_a_pass_only_where_nobody_made_one(example: Example) -> None:
    run_pass()
    seen = passes()

    assert pass_catch_up(seen - 1) is False
    assert passes() == seen
    assert pass_catch_up(seen) is True
    assert passes() == seen + 1


@pytest.fixture
def proxy() -> Iterator[SilentProxy]:
    with silent_proxy(urlsplit(settings.REDIS_URL).port or 0) as made:
        yield made


@contextmanager
def worker(proxy: SilentProxy, folder: Path, *words: str, every_s: int) -> Iterator[None]:
    """A worker that reaches its broker by way of the proxy."""
    at = connection.settings_dict
    there = f"{at['USER']}:{at['PASSWORD']}@{at['HOST']}:{at['PORT']}/{at['NAME']}"
    command = [sys.executable, "-m", "celery", "-q", "-A", "rpm", "worker", "--pool", "threads"]
    process = subprocess.Popen(
        [*command, "--without-gossip", "--without-mingle", "--concurrency", "2", *words],
        cwd=ROOT,
        env=os.environ
        | {
            "DATABASE_URL": f"postgresql://{there}",
            "REDIS_URL": f"redis://127.0.0.1:{proxy.port}/0",
            "RPM_PASS_EVERY_S": str(every_s),
            "RPM_HOME": str(folder),
        },
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        stop(process, signal=signal.SIGTERM)


def grows(ring: Callable[[], object] = lambda: None) -> Callable[[], bool]:
    """Whether there are more passes than now, after one more ring."""
    before = passes()

    def has_grown() -> bool:
        ring()
        return passes() > before

    return has_grown


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_a_worker_hears_hints_again_after_its_broker_fell_silent(
    example: Example, proxy: SilentProxy, tmp_path: Path
) -> None:
    app: Celery = current_app

    def ring() -> object:
        return app.send_task("allocation.run_pass", ignore_result=True)

    with worker(proxy, tmp_path, every_s=300):
        wait_until(grows(ring), what="a hint is heard", timeout_s=60)

        proxy.silence()

        wait_until(grows(ring), what="what was sent before is done", timeout_s=60)
        wait_until(grows(ring), what="a hint is heard again", timeout_s=60)


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_passes_go_on_while_the_broker_answers_nobody(
    example: Example, proxy: SilentProxy, tmp_path: Path
) -> None:
    with worker(proxy, tmp_path, "--beat", f"--schedule={tmp_path / 'beat'}", every_s=1):
        wait_until(grows(), what="passes", timeout_s=60)

        proxy.silence(later_too=True)

        for _ in range(3):
            wait_until(grows(), what="one more pass", timeout_s=60)
