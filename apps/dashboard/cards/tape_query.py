"""What the links of the tape ask for: how many hours, how far back, drawn or as a table."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self
from urllib.parse import parse_qs, urlencode

from apps.dashboard.cards.tape_geometry import TimeWindow
from apps.dashboard.live import key_id

SPANS = (6, 12, 24, 72)
DEFAULT = 24
# What is to come takes this part of what was.
AHEAD = 4
MOST_BACK = 31 * 24


@dataclass(frozen=True, slots=True)
class TapeQuery:
    """Hours of the past that are shown, so many hours back; as a table or drawn."""

    hours: int = DEFAULT
    back: int = 0
    is_table: bool = False

    @classmethod
    def parse(cls, query: str) -> Self:
        """From a query string such as `hours=12&back=6`; what is no number is left out."""
        given = {key: values[-1] for key, values in parse_qs(query).items()}
        hours = next((one for one in SPANS if str(one) == given.get("hours")), DEFAULT)
        back = min(key_id(given.get("back", "")), MOST_BACK)
        return cls(hours, back, given.get("table") == "1")

    def query(self) -> str:
        values = {"hours": self.hours, "back": self.back, "table": int(self.is_table)}
        return urlencode({key: value for key, value in values.items() if value})

    def window(self, now: datetime) -> TimeWindow:
        began = now - timedelta(hours=self.hours + self.back)
        return TimeWindow(began, began + timedelta(hours=self.hours * (AHEAD + 1) / AHEAD), now)

    @property
    def spans(self) -> list[tuple[int, str, bool]]:
        """Hours and query of each zoom, and whether it is this one."""
        return [(one, replace(self, hours=one).query(), one == self.hours) for one in SPANS]

    @property
    def earlier(self) -> str:
        """The query of half a span before; empty at the end."""
        back = min(self.back + self.hours // 2, MOST_BACK)
        return replace(self, back=back).query() if back > self.back else ""

    @property
    def later(self) -> str:
        back = max(self.back - self.hours // 2, 0)
        return replace(self, back=back).query() if self.back else ""

    @property
    def latest(self) -> str:
        return replace(self, back=0).query()

    @property
    def other_form(self) -> str:
        """The query of the table, or of the drawing."""
        return replace(self, is_table=not self.is_table).query()
