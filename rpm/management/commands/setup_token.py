"""`manage.py setup_token`: the first sign-in where `up` is not used."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from apps.accounts.services.people import setup_token_create


class Command(BaseCommand):
    help = (
        "Print the one-time address that makes the first administrator, unless there is an account."
    )

    def handle(self, *_args: Any, **_options: Any) -> None:
        token = setup_token_create()
        if token is None:
            words = "There is an account already: sign in, or run `manage.py person add`."
            self.stdout.write(words)
            return
        origin = next(iter(settings.CSRF_TRUSTED_ORIGINS), "http://127.0.0.1:8000")
        self.stdout.write(f"Make the first administrator: {origin}/set-up/?token={token}")
