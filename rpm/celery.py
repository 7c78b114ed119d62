"""Background work: every message only notifies a worker to read the database now."""

import logging.config
import os
import signal

from celery import Celery
from celery.signals import beat_embedded_init, setup_logging
from django.conf import settings

from rpm.parent_death import end_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rpm.settings")

# The worker's own number in the beat that it forks.
LOADED_BY = os.getpid()

app = Celery("rpm")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(related_name="background")


@beat_embedded_init.connect
def end_with_worker(**_: object) -> None:
    """The beat of `worker --beat` is a process of its own, which outlived a killed worker."""
    # It has nothing to lose; SIGTERM, which it handles, did not end it in every case. Not
    # `os.getppid()`: the worker may have been killed before this line.
    end_with_parent(LOADED_BY, signal.SIGKILL)


@setup_logging.connect
def keep_logging(**_: object) -> None:
    """Beat and workers log as everything else does; Celery would write lines of its own."""
    logging.config.dictConfig(settings.LOGGING)
