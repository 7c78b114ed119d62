"""`manage.py demo`: load the worked example; `--remove` removes it."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from apps.accounts.models import ADMINS
from rpm import demonstration


class Command(BaseCommand):
    help = "Load the demonstration (simulated GPUs), or remove it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--remove", action="store_true", help="remove the demonstration")
        parser.add_argument("--again", action="store_true", help="load it although it was removed")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["remove"]:
            self._remove()
        elif demonstration.is_present():
            count = demonstration.enqueue_tasks()
            words = f"{count} new tasks are enqueued" if count else "its tasks continue"
            self.stdout.write(f"The demonstration is loaded; {words}.")
            self._show(demonstration.stored_logins())
        elif demonstration.is_loaded() and not options["again"]:
            self.stdout.write("The demonstration was removed; `demo --again` loads it.")
        else:
            self._show(demonstration.load())

    def _remove(self) -> None:
        if not demonstration.is_present():
            self.stdout.write("The demonstration is not loaded.")
            return
        staying = demonstration.remove()
        self.stdout.write("The demonstration is removed: work aborted, people deactivated.")
        for name in staying:
            self.stdout.write(
                f"{name} stays, as there is no other administrator. Add one "
                f"(manage.py person add NAME --group {ADMINS}), then deactivate {name}."
            )

    def _show(self, logins: list[demonstration.DemonstrationLogin]) -> None:
        self.stdout.write("Log-ins of the demonstration:")
        for login in logins:
            self.stdout.write(f"  {login.username:<14} {login.password:<14} {login.role}")
