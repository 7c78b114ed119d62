"""Lets nodes drop the last traces of tasks that are long over."""

import time
from datetime import timedelta

import structlog
from django.utils import timezone

from apps.execution.client import NodeClient
from apps.execution.protocol.outcomes import Answered
from apps.execution.protocol.requests import EndedTask, ForgetRequest
from apps.execution.services.node_ownership import as_server
from apps.nodes.models import Node
from apps.tasks.models import Member

log = structlog.get_logger(__name__)

# No launch can be on its way for so long.
OVER_FOR = timedelta(days=1)
EVERY_S = 60.0
AT_ONCE = 500


class FenceCleanup:
    """Of one node. A fence stays on it until the task has been over for a day."""

    def __init__(self) -> None:
        self._requested_at = float("-inf")

    def forget(self, node: Node, client: NodeClient, token: str) -> None:
        """Let the node forget some, from time to time."""
        if time.monotonic() - self._requested_at < EVERY_S:
            return
        self._requested_at = time.monotonic()
        rows = list(
            Member.objects.filter(
                node=node,
                is_acknowledged=True,
                is_forgotten=False,
                attempt__ended_at__lt=timezone.now() - OVER_FOR,
            )
            .order_by("pk")
            .values_list("pk", "attempt__task_id", "attempt__generation")[:AT_ONCE]
        )
        if not rows:
            return
        newest: dict[str, int] = {}
        for _, task_id, generation in rows:
            newest[str(task_id)] = max(generation, newest.get(str(task_id), 0))
        outcome = client.forget(
            ForgetRequest(
                installation=client.installation,
                tasks=tuple(EndedTask(task, generation) for task, generation in newest.items()),
            )
        )
        if not isinstance(outcome, Answered):
            log.warning("node.forget_unanswered", detail=outcome.detail)
            return
        # What it did not forget runs there again, or ran: its newer fence stands for these.
        with as_server(node.pk, token):
            Member.objects.filter(pk__in=[pk for pk, _, _ in rows]).update(is_forgotten=True)
