"""Wiring of the app."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import import_string


def _ensure_installation(sender: AppConfig, **_: Any) -> None:
    sender.get_model("Installation")._default_manager.get_or_create(id=1)


class NodesConfig(AppConfig):
    name = "apps.nodes"
    label = "nodes"
    verbose_name = "Nodes"

    def ready(self) -> None:
        post_migrate.connect(_ensure_installation, sender=self)
        import_string("apps.nodes.permissions.register")()
