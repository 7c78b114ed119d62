"""`manage.py restore FILE`: what `backup` wrote, in place of what is here."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.core.errors import RpmError
from rpm.backups.audit_notes import NOT_RECORDED, restore_note
from rpm.backups.keys import BEFORE
from rpm.backups.passphrase import add_passphrase, passphrase_of
from rpm.backups.services import backup_restore
from rpm.static_files import static_collect

NEXT = (
    "Next: manage.py upgrade, start everything again, and check the nodes: what was started "
    "after the backup is unknown to this database. Nothing of it is killed, and nothing new is "
    "started, until an administrator runs `rpmctl confirm-restored`: then the unknown is ended."
)


class Command(BaseCommand):
    help = "Put database and keys of a backup in place; web, workers and beat must be stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument(
            "--replace", action="store_true", help="throw away what is in the database now"
        )
        add_passphrase(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            restored = backup_restore(
                options["file"],
                passphrase=passphrase_of(options),
                is_replacing=options["replace"],
            )
        except RpmError as error:
            raise CommandError(error.detail) from error
        made = restored.manifest
        is_noted = restore_note(options["file"].name, made.made_at.isoformat())
        self.stdout.write(
            f"Installation {made.installation} is as it was on {made.made_at:%Y-%m-%d %H:%M} UTC, "
            f"under RPM {made.version}."
        )
        for path in restored.keys:
            self.stdout.write(f"  {path} is the backup's.")
            if path in restored.replaced:
                self.stdout.write(f"    What was there is {path.name}{BEFORE} now.")
        for warning in (*restored.warnings, *(() if is_noted else (NOT_RECORDED,))):
            self.stdout.write(f"  {warning}")
        if where := static_collect():
            self.stdout.write(f"  {where}")
        self.stdout.write(NEXT)
