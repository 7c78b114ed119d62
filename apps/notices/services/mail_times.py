"""When a mail is due, in the time zone of its user."""

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from apps.accounts.selectors import time_zone_of
from apps.notices.models import NoticeDigest, NoticeSettings

DAILY_AT = time(8)


def is_due(row: NoticeSettings, *, oldest: datetime, now: datetime) -> bool:
    """Whether a mail may go now.

    Args:
        oldest: the moment of its first notice.
    """
    zone = time_zone_of(row.user)
    return not is_quiet(row, now.astimezone(zone)) and now >= _due_at(row.digest, oldest, zone)


def is_quiet(row: NoticeSettings, local: datetime) -> bool:
    """Whether this is within the quiet hours, which may go over midnight."""
    begin, end = row.quiet_from, row.quiet_until
    if begin is None or end is None or begin == end:
        return False
    if begin < end:
        return begin <= local.hour < end
    return local.hour >= begin or local.hour < end


def _due_at(digest: str, oldest: datetime, zone: ZoneInfo) -> datetime:
    if digest == NoticeDigest.AT_ONCE:
        return oldest
    if digest == NoticeDigest.HOURLY:
        # Full hours are the same in UTC but in zones that are off by half an hour.
        return oldest.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    local = oldest.astimezone(zone)
    day = local.date() if local.time() < DAILY_AT else local.date() + timedelta(days=1)
    return datetime.combine(day, DAILY_AT, zone)
