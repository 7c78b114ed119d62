"""Wiring of the app."""

from django.apps import AppConfig


class ConfigurationConfig(AppConfig):
    name = "apps.configuration"
    label = "configuration"
    verbose_name = "Configuration"
