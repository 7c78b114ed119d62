"""The days that a report is about."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from apps.core import clock
from apps.core.errors import BadInput

DAY = timedelta(days=1)
DEFAULT_DAYS = 28
MOST_DAYS = 366
FIRST_YEAR, LAST_YEAR = 2000, 2999


@dataclass(frozen=True, slots=True)
class UsagePeriod:
    """Whole days in UTC, from `first` to `last`, both included."""

    first: date
    last: date

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    @property
    def start(self) -> datetime:
        return datetime.combine(self.first, time(), UTC)

    @property
    def end(self) -> datetime:
        return datetime.combine(self.last, time(), UTC) + DAY

    @property
    def before(self) -> "UsagePeriod":
        """As many days, up to the day before the first one."""
        return UsagePeriod(self.first - self.days * DAY, self.first - DAY)

    @classmethod
    def parse(cls, first: date | None, last: date | None) -> "UsagePeriod":
        """The days of a request; by default 28 days, up to today.

        Raises:
            BadInput: it ends before it begins, is too long, or is in no year of this time.
        """
        last = last or clock.now().astimezone(UTC).date()
        if not FIRST_YEAR <= last.year <= LAST_YEAR:
            raise bad_query("until", f"must be in {FIRST_YEAR} to {LAST_YEAR}")
        first = first or last - (DEFAULT_DAYS - 1) * DAY
        if last < first:
            raise bad_query("until", "must not be before since")
        if (last - first).days >= MOST_DAYS:
            raise bad_query("since", f"a report covers at most {MOST_DAYS} days")
        return cls(first, last)

    @classmethod
    def last_days(cls, days: int) -> "UsagePeriod":
        """So many days, today included."""
        today = clock.now().astimezone(UTC).date()
        return cls(today - (days - 1) * DAY, today)

    @staticmethod
    def day_of(at: datetime) -> datetime:
        """The beginning of its day."""
        return datetime.combine(at.astimezone(UTC).date(), time(), UTC)

    @property
    def is_over(self) -> bool:
        return self.end <= clock.now()


def bad_query(field: str, words: str) -> BadInput:
    """The error that names what of a report's query is wrong."""
    return BadInput(f"{field}: {words}.", fields={field: words})
