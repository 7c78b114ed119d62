"""The project: settings, addresses, admin site and command line."""

from rpm.celery import app as celery_app

__all__ = ["celery_app"]
