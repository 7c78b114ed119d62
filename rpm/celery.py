"""Background work: a doorbell. Every job says "look in the database now"."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rpm.settings")

app = Celery("rpm")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(related_name="background")
