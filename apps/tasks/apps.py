"""Wiring of the app."""

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate
from django.utils.module_loading import import_string

from apps.core.triggers import edges_condition, refuse_updates
from apps.tasks.lifecycle.transitions import ATTEMPT_EDGES, TASK_EDGES

# The node may have received the lease, and other nodes rely on its end. Another boot has another
# lease.
_NEVER_TAKEN_BACK = (
    "(OLD.released_at IS NOT NULL AND NEW.released_at IS NULL) OR "
    "(OLD.boot_id = NEW.boot_id AND OLD.lease_until_s IS NOT NULL AND "
    "(NEW.lease_until_s IS NULL OR NEW.lease_until_s < OLD.lease_until_s))"
)


def _guard_edges(using: str, **_: Any) -> None:
    for table, edges in (("tasks_task", TASK_EDGES), ("tasks_attempt", ATTEMPT_EDGES)):
        refuse_updates(
            connections[using],
            table=table,
            columns=["state"],
            when=edges_condition(edges),
            message=f"illegal edge of {table}",
        )
    refuse_updates(
        connections[using],
        table="tasks_member",
        columns=["lease_until_s", "released_at"],
        when=_NEVER_TAKEN_BACK,
        message="leases never get shorter, and what was released stays so",
    )


class TasksConfig(AppConfig):
    name = "apps.tasks"
    label = "tasks"
    verbose_name = "Tasks"

    def ready(self) -> None:
        post_migrate.connect(_guard_edges, sender=self)
        import_string("apps.tasks.permissions.register")()
