"""`manage.py serve_nodes`: a node server, one of the processes that share the nodes."""

import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.core.notifications import NOTIFY_EXECUTION, listen
from apps.execution.node_server.identity import is_here
from apps.execution.node_server.server import NodeServer
from apps.nodes.selectors import serving_processes


class Command(BaseCommand):
    help = "Serve nodes: connect to them, start and stop tasks, read reports, until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--check",
            action="store_true",
            help="exit with status 0 if a node server runs on this machine, else 1",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if not options["check"]:
            self._serve()
        elif not any(is_here(token) for token in serving_processes()):
            raise CommandError("No process on this machine serves nodes.")

    def _serve(self) -> None:
        stopped = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        server = NodeServer()
        server.start()
        self.stdout.write("Serving nodes. Ctrl-C ends it.")
        self.stdout.flush()
        try:
            listen(NOTIFY_EXECUTION, server.wake, stopped)
        finally:
            server.stop()
