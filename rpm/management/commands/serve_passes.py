"""`manage.py serve_passes`: passes and nodes from a plain loop, without broker or beat."""

import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from apps.allocation.services import run_pass
from apps.execution.serving.server import NodeServer


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
            outcome = run_pass()
            if outcome.placed:
                server.look()
        server.stop()
