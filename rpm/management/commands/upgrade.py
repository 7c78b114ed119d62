"""`manage.py upgrade`: from the database of an older version to this one."""

import io
from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, SystemCheckError
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from apps.core.errors import RpmError
from rpm.apps import OTHER_VERSION, unknown_migration
from rpm.backups.manifest import version
from rpm.backups.passphrase import add_passphrase, passphrase_of
from rpm.backups.services import backup_make
from rpm.static_files import static_collect

RESTART = """\
Restart now, in this order; tasks on the nodes continue:
  1. node servers (`serve_nodes`): they put the new helper on each node
  2. workers (`celery ... worker`) and beat
  3. web (`gunicorn`), sockets and streams (`uvicorn`)
With `manage.py up`: end it and start it again. With systemd:
systemctl restart 'rpm-nodes@*' 'rpm-worker@*' rpm-beat rpm-web rpm-sockets rpm-streams
Until then, processes of the version before may run next to the new ones."""


class Command(BaseCommand):
    help = "Check, back up, migrate, collect static files, and say what to restart."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--backup", type=Path, metavar="FILE", help="default: backups/ in RPM_HOME"
        )
        parser.add_argument("--no-backup", action="store_true", help="skip the backup")
        add_passphrase(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            missing = self._check()
            is_empty = not connection.introspection.table_names()
            if not options["no_backup"]:
                self._back_up(options)
        except RpmError as error:
            raise CommandError(error.detail) from error
        call_command("migrate", interactive=False, verbosity=0)
        self.stdout.write(f"Migrated: {', '.join(missing) or 'nothing was missing'}.")
        call_command("keys", "bind", "--once", stdout=self.stdout, stderr=self.stderr)
        if where := static_collect():
            self.stdout.write(where)
        self.stdout.write(f"The database is that of RPM {version()}.")
        # Nothing runs yet on a new installation, nor after a restore, which is upgraded without.
        if not is_empty and not options["no_backup"]:
            self.stdout.write(RESTART)

    def _check(self) -> list[str]:
        """The migrations to come; refuses a database that this version does not know."""
        try:
            call_command("check", stdout=io.StringIO())
            executor = MigrationExecutor(connection)
        except SystemCheckError as error:
            raise CommandError(f"The settings are not fit: {error}") from error
        except DatabaseError as error:
            raise CommandError(f"The database does not answer: {error}") from error
        if found := unknown_migration():
            raise CommandError(OTHER_VERSION.format(found))
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]

    def _back_up(self, options: dict[str, Any]) -> None:
        if not connection.introspection.table_names():
            self.stdout.write("The database is empty: there is nothing to back up.")
            return
        target: Path | None = options["backup"]
        if target is None:
            folder = settings.HOME.file("backups")
            folder.mkdir(mode=0o700, exist_ok=True)
            target = folder / f"before-{version()}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.rpm"
        backup_make(target.absolute(), passphrase=passphrase_of(options))
        self.stdout.write(f"The database of before is in {target.absolute()}.")
