"""Wiring of the app."""

from contextlib import suppress

from django.apps import AppConfig

from apps.core import keyring


class CoreConfig(AppConfig):
    name = "apps.core"
    label = "core"
    verbose_name = "Core"

    def ready(self) -> None:
        """Make the key ring at the first start; an invalid key stops it."""
        try:
            # Where nothing can be written, the code that needs a key reports it.
            with suppress(OSError):
                keyring.keys()
        except ValueError as error:
            raise SystemExit(f"The key ring (RPM_SECRET_KEYS) cannot be used: {error}.") from error
