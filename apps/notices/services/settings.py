"""Changes when a user gets notices by e-mail."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import BadInput
from apps.events.services import event_record
from apps.notices.models import NoticeDigest, NoticeSettings

FIELDS = ("digest", "quiet_from", "quiet_until")
HOURS = range(24)


@transaction.atomic
def notice_settings_change(*, user: User, changes: Mapping[str, Any]) -> NoticeSettings:
    """Change some of `FIELDS`.

    Raises:
        BadInput: naming the field.
    """
    NoticeSettings.objects.get_or_create(user=user)
    row = NoticeSettings.objects.select_for_update().get(user=user)
    before = _facts(row)
    for name in FIELDS:
        setattr(row, name, changes.get(name, getattr(row, name)))
    _check(row)
    if before != _facts(row):
        row.save(update_fields=FIELDS)
        event_record(
            "notice_settings.changed",
            actor=user,
            object_type="notice_settings",
            object_id=user.pk,
            data={"name": user.username, "before": before, "after": _facts(row)},
        )
    return row


def _check(row: NoticeSettings) -> None:
    if row.digest not in NoticeDigest.values:
        raise _bad_input("digest", f"choose one of {', '.join(NoticeDigest.values)}")
    for name, other in (("quiet_from", row.quiet_until), ("quiet_until", row.quiet_from)):
        hour = getattr(row, name)
        if hour is None and other is not None:
            raise _bad_input(name, "is missing: quiet hours have a beginning and an end")
        if hour is not None and hour not in HOURS:
            raise _bad_input(name, "must be a full hour from 0 to 23")


def _facts(row: NoticeSettings) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FIELDS}


def _bad_input(field: str, words: str) -> BadInput:
    return BadInput(f"{field}: {words}.", fields={field: words})
