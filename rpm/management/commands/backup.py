"""`manage.py backup FILE`: database and keys in one file."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.core.errors import RpmError
from rpm.backups.audit_notes import NOT_RECORDED, backup_note
from rpm.backups.keys import keys_by_variable
from rpm.backups.passphrase import add_passphrase, passphrase_of
from rpm.backups.services import backup_make, backup_verify, backups_prune, is_folder


class Command(BaseCommand):
    help = "Write database and keys into one file, while RPM runs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "file", help="a new file, or a folder, in which it is named by the time"
        )
        parser.add_argument(
            "--keep",
            type=int,
            metavar="N",
            help="keep N backups: remove older ones next to it whose names differ in digits only",
        )
        parser.add_argument(
            "--verify", action="store_true", help="write nothing: read FILE and compare checksums"
        )
        add_passphrase(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        target = Path(options["file"]).absolute()
        keep: int | None = options["keep"]
        if keep is not None and (keep < 1 or options["verify"]):
            raise CommandError("--keep: 1 or more, and not together with --verify.")
        try:
            if str(options["file"]).endswith("/") and not is_folder(target):
                raise CommandError(f"There is no folder {target}.")
            passphrase = passphrase_of(options)
            if options["verify"]:
                self._verify(target, passphrase)
            else:
                self._make(target, passphrase, keep)
        except RpmError as error:
            raise CommandError(error.detail) from error

    def _verify(self, source: Path, passphrase: str) -> None:
        made = backup_verify(source, passphrase=passphrase)
        self.stdout.write(
            f"{source} is whole: installation {made.installation} on "
            f"{made.made_at:%Y-%m-%d %H:%M} UTC, under RPM {made.version}."
        )
        self.stdout.write(f"  Holds {', '.join(part.name for part in made.parts)}.")

    def _make(self, target: Path, passphrase: str, keep: int | None) -> None:
        if is_folder(target):
            target /= f"rpm-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.backup"
        manifest = backup_make(target, passphrase=passphrase)
        is_noted = backup_note(target.name, is_sealed=bool(passphrase))
        size = target.stat().st_size
        how = "sealed with the passphrase" if passphrase else "not sealed, readable by you alone"
        self.stdout.write(f"{target}: {size / 1e6:.1f} MB, {how}.")
        self.stdout.write(f"  Holds {', '.join(part.name for part in manifest.parts)}.")
        if not passphrase:
            self.stdout.write("  It holds every key in clear: keep it where only you can read it.")
        if not is_noted:
            self.stdout.write(f"  {NOT_RECORDED}")
        for variable in keys_by_variable():
            self.stdout.write(f"  Does not hold {variable}, which is a variable: keep it yourself.")
        for key in manifest.elsewhere:
            self.stdout.write(f"  Does not hold {key}, a node's key: keep it yourself.")
        for path in backups_prune(target, keep=keep) if keep is not None else ():
            self.stdout.write(f"  Removed {path}.")
