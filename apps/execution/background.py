"""Background work: serve nodes from the threads of this worker."""

from celery import shared_task
from celery.signals import worker_ready, worker_shutdown

from apps.execution.node_server.server import NodeServer

_server: list[NodeServer] = []


@worker_ready.connect
def start_serving(**_: object) -> None:
    """A worker serves nodes from its first moment on."""
    if not _server:
        _server.append(NodeServer())
        _server[0].start()


@worker_shutdown.connect
def stop_serving(**_: object) -> None:
    """Let go of the nodes, so that another worker takes them at once."""
    while _server:
        _server.pop().stop()


@shared_task(name="execution.poll", ignore_result=True)
def execution_poll() -> None:
    """Look at the database now; lost, doubled or late without harm."""
    for server in _server:
        server.wake()
