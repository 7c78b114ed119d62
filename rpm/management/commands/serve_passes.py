"""`manage.py serve_passes`: passes and nodes from a plain loop, without broker or beat."""

import signal
import threading
from typing import Any

import structlog
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import InterfaceError, OperationalError, close_old_connections

from apps.allocation.services import run_pass
from apps.execution.serving.server import NodeServer

log = structlog.get_logger(__name__)


class Command(BaseCommand):
    help = "Run passes and serve nodes without a broker, until Ctrl-C."

    def handle(self, *_args: Any, **_options: Any) -> None:
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        server = NodeServer()
        server.start()
        self.stdout.write("Serving passes and nodes. Ctrl-C ends it.")
        while not stopped.wait(min(1.0, settings.PASS_EVERY_S)):
            if decide_once():
                server.look()
        server.stop()


def decide_once() -> bool:
    """Whether anything was decided; a database that is away is asked again at the next turn."""
    try:
        outcome = run_pass()
    except (OperationalError, InterfaceError) as error:
        log.warning("pass.failed", detail=str(error).strip())
        close_old_connections()
        return False
    return bool(outcome.placed or outcome.preempted)
