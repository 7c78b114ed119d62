"""Wiring of the app."""

from django.apps import AppConfig


class ExecutionConfig(AppConfig):
    name = "apps.execution"
    label = "execution"
    verbose_name = "Execution"
