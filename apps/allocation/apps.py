"""Wiring of the app."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


def _ensure_state(sender: AppConfig, **_: Any) -> None:
    sender.get_model("PassState")._default_manager.get_or_create(id=1)


class AllocationConfig(AppConfig):
    name = "apps.allocation"
    label = "allocation"
    verbose_name = "Allocation"

    def ready(self) -> None:
        post_migrate.connect(_ensure_state, sender=self)
