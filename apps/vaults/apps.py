"""Wiring of the app."""

from django.apps import AppConfig


class VaultsConfig(AppConfig):
    name = "apps.vaults"
    label = "vaults"
    verbose_name = "Vaults"
