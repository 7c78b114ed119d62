"""All that administrators of the installation set about a person, in one call."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.accounts.services.groups import memberships_lock
from apps.accounts.services.people_changes import (
    PLAIN,
    person_activate,
    person_change,
    person_deactivate,
    person_record,
    person_save,
)
from apps.accounts.services.preferences import patterns_clean
from apps.accounts.services.profile import time_zone_check

SETTINGS = ("time_zone", "unix_uid", "unix_gid", "redacted_variables")


@transaction.atomic
def person_set(*, actor: User | None, user: User, changes: Mapping[str, Any]) -> User:
    """Change names, address, settings, `groups` and `is_active`: those that are given.

    Raises:
        BadInput: naming the field.
        Conflict: nobody would administer any more.
        NotAllowed: the actor does not look after this person, or it is a service account.
    """
    memberships_lock()
    plain = {name: changes[name] for name in PLAIN if name in changes}
    row = person_change(actor=actor, user=user, changes=plain, groups=changes.get("groups"))
    _settings_change(actor, row, {name: changes[name] for name in SETTINGS if name in changes})
    is_wanted = changes.get("is_active", row.is_active)
    if is_wanted == row.is_active:
        return row
    switch = person_activate if is_wanted else person_deactivate
    return switch(actor=actor, user=row)


def _settings_change(actor: User | None, row: User, settings: Mapping[str, Any]) -> None:
    if "redacted_variables" in settings:
        patterns_clean(settings["redacted_variables"], stored=row.redacted_variables)
    time_zone_check(settings.get("time_zone", ""))
    before = {name: getattr(row, name) for name in settings if getattr(row, name) != settings[name]}
    if before:
        person_save(row, {name: settings[name] for name in before})
        person_record("person.changed", actor=actor, user=row, before=before)
