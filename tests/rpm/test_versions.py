"""A database of another version of RPM is refused; what libraries did in it does not matter."""

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from rpm.apps import unknown_migration

pytestmark = pytest.mark.django_db


def test_a_database_of_a_later_version_is_refused() -> None:
    MigrationRecorder(connection).record_applied("tasks", "0999_of_a_later_version")

    assert unknown_migration() == "tasks.0999_of_a_later_version"
    with pytest.raises(CommandError, match=r"tasks\.0999_of_a_later_version"):
        call_command("migrate", verbosity=0)


def test_a_migration_that_a_library_has_squashed_since_is_no_sign_of_another_version() -> None:
    MigrationRecorder(connection).record_applied("guardian", "0001_squashed_since")

    assert unknown_migration() == ""
    call_command("migrate", verbosity=0)
