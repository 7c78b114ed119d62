"""`manage.py serve_passes`: passes and nodes from a plain loop, without broker or beat."""

import signal
import threading
import time
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import InterfaceError, OperationalError, close_old_connections

from apps.allocation.services import run_pass
from apps.configuration.services.revision_retention import revisions_remove_old
from apps.execution.node_server.server import NodeServer
from apps.tasks.services.retention import expired_remove, retention_of
from apps.usage.services.runs import usage_run

log = structlog.get_logger(__name__)

TIDY_EVERY_S = 60.0
TIDY_FOR_S = 1.0


class Command(BaseCommand):
    help = "Run passes and serve nodes without a broker, until Ctrl-C."

    def handle(self, *_args: Any, **_options: Any) -> None:
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        server = NodeServer()
        server.start()
        tidied_at = time.monotonic()
        self.stdout.write("Serving passes and nodes. Ctrl-C ends it.")
        while not stopped.wait(min(1.0, settings.PASS_EVERY_S)):
            if decide_once():
                server.wake()
            if time.monotonic() - tidied_at > TIDY_EVERY_S:
                tidied_at = time.monotonic()
                tidy_once()
        server.stop()


def tidy_once() -> None:
    """Book usage and remove some expired data; this is short, because passes wait for it."""
    kept = retention_of(
        logs_days=settings.KEEP_LOGS_DAYS,
        tasks_days=settings.KEEP_TASKS_DAYS,
        events_days=settings.KEEP_EVENTS_DAYS,
        task_bytes=settings.RPM_TASK_BYTES_PER_PERSON,
    )
    try:
        usage_run(run_s=TIDY_FOR_S)
        expired_remove(kept, run_s=TIDY_FOR_S)
        revisions_remove_old(most=settings.KEEP_REVISIONS)
    except (OperationalError, InterfaceError) as error:
        log.warning("tidy.failed", detail=str(error).strip())
        close_old_connections()


def decide_once() -> bool:
    """Whether a pass decided anything; without an answer of the database, try again next turn."""
    try:
        outcome = run_pass()
    except (OperationalError, InterfaceError) as error:
        log.warning("pass.failed", detail=str(error).strip())
        close_old_connections()
        return False
    return bool(outcome.placed or outcome.preempted)
