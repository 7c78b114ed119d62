"""Wiring of the app."""

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate
from django.utils.module_loading import import_string

from apps.core.recorders import recorder_register
from apps.core.triggers import refuse_decreases, refuse_row_changes, refuse_updates

# Columns that only sealing fills.
SEALED = frozenset({"position", "previous_hash", "hash"})


class EventsConfig(AppConfig):
    name = "apps.events"
    label = "events"
    verbose_name = "Events"

    def ready(self) -> None:
        post_migrate.connect(_guard_log, sender=self)
        post_migrate.connect(_guard_audit, sender=self)
        recorder_register(import_string("apps.events.services.event_record"))
        import_string("apps.events.sign_in_audit.connect")()


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


def _guard_audit(sender: AppConfig, using: str, **_: Any) -> None:
    entry = sender.get_model("AuditEntry")
    columns = [str(one.column) for one in entry._meta.local_fields]
    refuse_row_changes(
        connections[using],
        table=entry._meta.db_table,
        columns=[one for one in columns if one not in SEALED],
        sealed="position",
        message="audit entries are never changed or removed",
    )
    refuse_decreases(
        connections[using],
        table=sender.get_model("AuditChain")._meta.db_table,
        column="length",
        message="the audit chain only grows",
    )
