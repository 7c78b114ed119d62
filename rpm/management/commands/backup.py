"""`manage.py backup FILE`: database and keys in one file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.core.errors import RpmError
from rpm.backups.asking import add_passphrase, passphrase_of
from rpm.backups.keys import keys_by_variable
from rpm.backups.noting import NOT_NOTED, made_note
from rpm.backups.services import backup_make


class Command(BaseCommand):
    help = "Write database and keys into one file, while everything goes on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        add_passphrase(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        target: Path = options["file"].absolute()
        try:
            passphrase = passphrase_of(options)
            manifest = backup_make(target, passphrase=passphrase)
        except RpmError as error:
            raise CommandError(error.detail) from error
        is_noted = made_note(target.name, is_sealed=bool(passphrase))
        size = target.stat().st_size
        how = "sealed with the passphrase" if passphrase else "not sealed, readable by you alone"
        self.stdout.write(f"{target}: {size / 1e6:.1f} MB, {how}.")
        self.stdout.write(f"  Holds {', '.join(part.name for part in manifest.parts)}.")
        if not passphrase:
            self.stdout.write("  Whoever reads it has every key: keep it where nobody else can.")
        if not is_noted:
            self.stdout.write(f"  {NOT_NOTED}")
        for variable in keys_by_variable():
            self.stdout.write(f"  Does not hold {variable}, which is a variable: keep it yourself.")
        for path in manifest.elsewhere:
            self.stdout.write(f"  Does not hold {path}, a node's key: keep it yourself.")
