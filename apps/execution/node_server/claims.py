"""Which nodes this process serves.

A claim holds for a few seconds by the clock of the database and is renewed by a thread of its
own, so that neither a slow pass nor a clock that jumps gives a node away.
"""

import threading
from collections.abc import Callable
from datetime import timedelta

import structlog
from django.db import connections, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from apps.execution.node_server.identity import is_dead
from apps.nodes.models import Node

log = structlog.get_logger(__name__)

CLAIM_FOR = timedelta(seconds=6)
CLAIM_EVERY_S = 2.0
# No claim is this long: a clock has jumped since it was made.
LONGEST_CLAIM = timedelta(minutes=10)


class Claims:
    """The nodes of one process. `mine` is what it held when it last looked.

    Args:
        token: the name of the process, as `identity.process_token` makes it.
        on_change: called from the thread here when `mine` is another set.
    """

    def __init__(self, token: str, on_change: Callable[[], None]) -> None:
        self.mine: frozenset[int] = frozenset()
        self._token = token
        self._on_change = on_change
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name="claims", daemon=True)

    def start(self) -> None:
        """Begin to claim."""
        self.thread.start()

    def stop(self) -> None:
        """Claim nothing more; what is held runs out, or is given back by `release`."""
        self._stopped.set()

    def release(self) -> None:
        """Let others take the nodes at once."""
        Node.objects.filter(served_by=self._token).update(served_by="", served_until=None)

    def claim(self) -> None:
        """Renew what is held, and take what no process holds."""
        for rows in (Node.objects.filter(served_by=self._token), self._free()):
            with transaction.atomic():
                # Rows that another transaction is writing to are left for the next time: a lock on
                # one node must not cost this process all the others.
                free = rows.select_for_update(skip_locked=True, no_key=True)
                taken = list(free.values_list("pk", flat=True))
                if taken:
                    Node.objects.filter(pk__in=taken).update(
                        served_by=self._token, served_until=Now() + CLAIM_FOR
                    )
        held = Node.objects.filter(served_by=self._token, removed_at__isnull=True)
        mine = frozenset(held.values_list("pk", flat=True))
        if mine != self.mine:
            self.mine = mine
            self._on_change()

    def _free(self) -> QuerySet[Node]:
        others = Node.objects.filter(removed_at__isnull=True).exclude(served_by=self._token)
        names = set(others.exclude(served_by="").values_list("served_by", flat=True).distinct())
        return others.filter(
            Q(served_by="")
            | Q(served_until__isnull=True)
            | Q(served_until__lt=Now())
            | Q(served_until__gt=Now() + LONGEST_CLAIM)
            | Q(served_by__in=[name for name in names if is_dead(name)])
        )

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.claim()
            except Exception:
                # A database that is away comes back; others may have taken the nodes by then.
                log.exception("claims.failed")
                connections.close_all()
            self._stopped.wait(CLAIM_EVERY_S)
        connections.close_all()
