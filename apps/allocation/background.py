"""Background work: run the pass."""

import threading

import structlog
from celery import shared_task
from celery.signals import worker_ready, worker_shutdown
from django.conf import settings
from django.db import DatabaseError

from apps.allocation.models import PassState
from apps.allocation.services import run_pass
from apps.core.connections import connections_release

# After so many missing passes of beat, a worker runs one by itself.
MISSED = 3

log = structlog.get_logger(__name__)
_stopped = threading.Event()


@shared_task(name="allocation.run_pass", ignore_result=True)
def allocation_run_pass() -> None:
    """Run a pass on the current database; it may be lost, doubled or late."""
    run_pass(waits=True)


@worker_ready.connect
def start_catch_up(**_: object) -> None:
    """A worker makes up for notifications that the broker or beat loses."""
    _stopped.clear()
    threading.Thread(target=_catch_up, name="pass-catch-up", daemon=True).start()


@worker_shutdown.connect
def stop_catch_up(**_: object) -> None:
    """Start no further pass."""
    _stopped.set()


def _catch_up() -> None:
    seen, is_lost = -1, False
    while not _stopped.wait(MISSED * settings.PASS_EVERY_S):
        try:
            was_lost, is_lost = is_lost, pass_catch_up(seen)
            if is_lost and not was_lost:
                log.warning("pass.hints_lost", advice="Passes go on; check the broker and beat.")
            elif was_lost and not is_lost:
                log.info("pass.hints_back")
            seen = _passes()
        except DatabaseError as error:
            log.warning("pass.failed", detail=str(error).strip())
        finally:
            connections_release()


def pass_catch_up(seen: int) -> bool:
    """Run a pass where none has run since `seen` were counted. Returns whether that was so."""
    is_lost = _passes() == seen
    if is_lost:
        run_pass()
    return is_lost


def _passes() -> int:
    return PassState.objects.filter(id=1).values_list("passes", flat=True).first() or 0
