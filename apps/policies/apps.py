"""Wiring of the app."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


def _ensure_states(sender: AppConfig, **_: Any) -> None:
    for name in ("LiveState", "DraftState"):
        sender.get_model(name)._default_manager.get_or_create(id=1)


class PoliciesConfig(AppConfig):
    name = "apps.policies"
    label = "policies"
    verbose_name = "Resources and policies"

    def ready(self) -> None:
        post_migrate.connect(_ensure_states, sender=self)
