"""Wiring of the app."""

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate

from apps.core.triggers import edges_condition, refuse_updates
from apps.tasks.states import ATTEMPT_EDGES, TASK_EDGES


def _guard_edges(using: str, **_: Any) -> None:
    for table, edges in (("tasks_task", TASK_EDGES), ("tasks_attempt", ATTEMPT_EDGES)):
        refuse_updates(
            connections[using],
            table=table,
            columns=["state"],
            when=edges_condition(edges),
            message=f"illegal edge of {table}",
        )


class TasksConfig(AppConfig):
    name = "apps.tasks"
    label = "tasks"
    verbose_name = "Tasks"

    def ready(self) -> None:
        post_migrate.connect(_guard_edges, sender=self)
