"""Wiring: our own admin site in place of Django's, and the checks of a deployment."""

from typing import Any

from django.apps import AppConfig, apps
from django.contrib.admin.apps import AdminConfig
from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.db.models.signals import pre_migrate

OTHER_VERSION = (
    "The database is of another version of RPM, which has the migration {}. Install that version, "
    "or restore a backup that this version made."
)


class RpmAdminConfig(AdminConfig):
    default_site = "rpm.admin.RpmAdminSite"


class RpmConfig(AppConfig):
    name = "rpm"
    label = "rpm"

    def ready(self) -> None:
        """Refuse to migrate a database that this version does not know."""
        # Sent once for each app with models, of which this is none.
        pre_migrate.connect(_refuse_other_version, sender=apps.get_app_config("accounts"))


def unknown_migration(using: str = "default") -> str:
    """A migration that the database has and this version does not; empty where there is none.

    Only of RPM's own apps: a library may remove migrations that it has squashed.
    """
    loader = MigrationLoader(connections[using])
    own = {one.label for one in apps.get_app_configs() if one.name.startswith("apps.")}
    applied = {one for one in loader.applied_migrations if one[0] in own}
    unknown = applied - set(loader.disk_migrations)
    return ".".join(max(unknown)) if unknown else ""


def _refuse_other_version(*, using: str, **_: Any) -> None:
    if found := unknown_migration(using):
        raise CommandError(OTHER_VERSION.format(found))
