"""Wiring of the app."""

from django.apps import AppConfig


class ConfigurationConfig(AppConfig):
    name = "apps.configuration"
    label = "configuration"
    verbose_name = "Configuration"

    def ready(self) -> None:
        from apps.configuration import membership  # noqa: PLC0415 - needs the models

        membership.connect()
