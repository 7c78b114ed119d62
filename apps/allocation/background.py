"""Background work: run the pass."""

import threading

import structlog
from celery import shared_task
from celery.signals import worker_ready, worker_shutdown
from django.conf import settings
from django.db import DatabaseError, connections

from apps.allocation.models import PassState
from apps.allocation.services import run_pass

# So many passes of beat may be missing until a worker makes one by itself.
MISSED = 3

log = structlog.get_logger(__name__)
_stopped = threading.Event()


@shared_task(name="allocation.run_pass", ignore_result=True)
def allocation_run_pass() -> None:
    """Look at the database now; lost, doubled or late without harm."""
    run_pass(waits=True)


@worker_ready.connect
def start_making_up(**_: object) -> None:
    """A worker makes up for hints that get lost, whoever lost them: the broker, or beat."""
    _stopped.clear()
    threading.Thread(target=_make_up, name="lost-hints", daemon=True).start()


@worker_shutdown.connect
def stop_making_up(**_: object) -> None:
    """No pass begins any more."""
    _stopped.set()


def _make_up() -> None:
    seen, is_lost = -1, False
    while not _stopped.wait(MISSED * settings.PASS_EVERY_S):
        try:
            was_lost, is_lost = is_lost, pass_make_up(seen)
            if is_lost and not was_lost:
                log.warning("pass.hints_lost", advice="Passes go on; check the broker and beat.")
            elif was_lost and not is_lost:
                log.info("pass.hints_back")
            seen = _passes()
        except DatabaseError as error:
            log.warning("pass.failed", detail=str(error).strip())
        finally:
            connections.close_all()


def pass_make_up(seen: int) -> bool:
    """Run a pass where nobody has run one since `seen` were made, and whether that was so."""
    is_lost = _passes() == seen
    if is_lost:
        run_pass()
    return is_lost


def _passes() -> int:
    return PassState.objects.filter(id=1).values_list("passes", flat=True).first() or 0
