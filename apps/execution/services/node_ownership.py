"""Writing for a node only while this process serves it.

A process that was stopped for a while and wakes up has stale data. All its writes go through here,
so that none reaches the database once another process has taken the node.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from apps.nodes.models import Node

# The server ends a transaction whose process is idle for so long: it was stopped, and others wait
# for the rows that it holds.
SILENT_MOST_MS = 5_000


class NotServing(Exception):
    """Another process serves the node by now."""


@contextmanager
def as_server(node_id: int, token: str) -> Iterator[None]:
    """One transaction of the process that serves the node, and of no other.

    Raises:
        NotServing: it does not; nothing was written.
    """
    with transaction.atomic():
        if not _is_served(node_id, token):
            raise NotServing(f"node {node_id}")
        yield


def _is_served(node_id: int, token: str) -> bool:
    """Whether it is; another process that would claim the node waits for this transaction."""
    if connection.vendor != "postgresql":
        # There is one writer at a time.
        return Node.objects.filter(pk=node_id, served_by=token).exists()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true) "
            "FROM nodes_node WHERE id = %s AND served_by = %s FOR NO KEY UPDATE",
            [str(SILENT_MOST_MS), node_id, token],
        )
        return cursor.fetchone() is not None
