"""Which nodes this process serves.

A claim holds for a few seconds by the clock of the database and is renewed by a thread of its
own, so that neither a slow pass nor a clock that jumps gives a node away. Each living process has
an equal share of the nodes: one that starts gets its nodes from the others, a few at a time.
"""

import math
import threading
from collections.abc import Callable
from datetime import timedelta

import structlog
from django.db import connections, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from apps.execution.node_server.identity import is_dead
from apps.nodes.models import Node, ServingProcess

log = structlog.get_logger(__name__)

CLAIM_FOR = timedelta(seconds=6)
CLAIM_EVERY_S = 2.0
# A node that is free for so long is taken by any process: those that should have are broken.
UNCLAIMED_FOR = timedelta(seconds=20)
# A process with too many nodes returns this share of what is too much, every time.
RETURNED_SHARE = 4
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
        ServingProcess.objects.filter(pk=self._token).delete()
        Node.objects.filter(served_by=self._token).update(served_by="", served_until=None)

    def claim(self) -> None:
        """Renew what is held, take what no process holds, and return what is beyond the share."""
        held = self._take(self._own())
        missing = self._share() - held
        if missing < 0:
            self._return(-(missing // RETURNED_SHARE))
        self._take(self._free().order_by("pk")[: max(missing, 0)])
        self._take(self._free().filter(_is_unclaimed()))
        mine = frozenset(self._own().values_list("pk", flat=True))
        if mine != self.mine:
            self.mine = mine
            self._on_change()

    def _share(self) -> int:
        """How many nodes each process has that is alive, rounded up."""
        own = ServingProcess.objects.filter(pk=self._token)
        if not own.update(alive_until=Now() + CLAIM_FOR):
            ServingProcess.objects.create(token=self._token, alive_until=Now() + CLAIM_FOR)
        others = ServingProcess.objects.exclude(pk=self._token)
        others.filter(Q(alive_until__lt=Now()) | Q(alive_until__gt=Now() + LONGEST_CLAIM)).delete()
        alive = sum(not is_dead(token) for token in others.values_list("pk", flat=True)) + 1
        return math.ceil(Node.objects.filter(removed_at__isnull=True).count() / alive)

    def _take(self, rows: QuerySet[Node]) -> int:
        """Claim these nodes, and say how many.

        Rows that another transaction is writing to are left for the next time: a lock on one node
        must not cost this process all the others.
        """
        with transaction.atomic():
            free = rows.select_for_update(skip_locked=True, no_key=True)
            taken = list(free.values_list("pk", flat=True))
            if taken:
                Node.objects.filter(pk__in=taken).update(
                    served_by=self._token, served_until=Now() + CLAIM_FOR
                )
        return len(taken)

    def _return(self, number: int) -> None:
        """Let processes with fewer nodes take some of these; work there goes on."""
        own = self._own().order_by("-pk")
        with transaction.atomic():
            free = own.select_for_update(skip_locked=True, no_key=True)[:number]
            Node.objects.filter(pk__in=list(free.values_list("pk", flat=True))).update(
                served_by="", served_until=Now()
            )

    def _own(self) -> QuerySet[Node]:
        return Node.objects.filter(served_by=self._token, removed_at__isnull=True)

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


def _is_unclaimed() -> Q:
    return Q(served_until__isnull=True) | Q(served_until__lt=Now() - UNCLAIMED_FOR)
