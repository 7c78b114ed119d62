"""`manage.py demo`: load the demonstration, pause, resume or remove it."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.models import ADMINS
from apps.core.errors import RpmError
from rpm import demonstration


class Command(BaseCommand):
    help = "Load the demonstration (two teams on simulated GPUs), or pause or remove it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--remove", action="store_true", help="remove the demonstration")
        what.add_argument("--again", action="store_true", help="load it although it was removed")
        what.add_argument("--pause", action="store_true", help="let its teams enqueue no more")
        what.add_argument("--resume", action="store_true", help="let them enqueue again")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["remove"] or options["pause"] or options["resume"]:
            self._change(**options)
        elif demonstration.is_present():
            count = demonstration.tasks_replenish()
            words = f"{count} new tasks are enqueued" if count else "its tasks continue"
            self.stdout.write(f"The demonstration is loaded; {words}.")
            self._show(demonstration.stored_logins())
        elif demonstration.is_loaded() and not options["again"]:
            self.stdout.write("The demonstration was removed; `demo --again` loads it.")
        else:
            self._show(demonstration.load())

    def _change(self, **options: Any) -> None:
        if not demonstration.is_present():
            self.stdout.write("The demonstration is not loaded.")
        elif options["remove"]:
            self._remove()
        elif options["pause"]:
            demonstration.pause()
            self.stdout.write("Its teams enqueue nothing more until `demo --resume`.")
        else:
            demonstration.resume()
            self.stdout.write("Its teams enqueue tasks again.")

    def _remove(self) -> None:
        try:
            staying = demonstration.remove()
        except RpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            "The demonstration is removed: its tasks, usage, policies, pools and nodes are gone, "
            "and its users are deactivated."
        )
        for name in staying:
            self.stdout.write(
                f"{name} stays, as there is no other administrator. Add one "
                f"(manage.py person add NAME --group {ADMINS}), then deactivate {name}."
            )

    def _show(self, logins: list[demonstration.DemonstrationLogin]) -> None:
        self.stdout.write("Log-ins of the demonstration:")
        for login in logins:
            self.stdout.write(f"  {login.username:<14} {login.password:<14} {login.role}")
