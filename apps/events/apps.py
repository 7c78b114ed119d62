"""Wiring of the app."""

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate

from apps.core.triggers import refuse_updates


def _guard_log(using: str, **_: Any) -> None:
    # The actor alone may be emptied, when a person is deleted.
    columns = ["at", "kind", "object_type", "object_id", "queue_id", "policy_id", "data"]
    refuse_updates(
        connections[using],
        table="events_event",
        columns=columns,
        when="OLD.id = NEW.id",
        message="events are never changed",
    )


class EventsConfig(AppConfig):
    name = "apps.events"
    label = "events"
    verbose_name = "Events"

    def ready(self) -> None:
        post_migrate.connect(_guard_log, sender=self)
