"""What resources cost."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Self

from django.conf import settings
from django.db import connection

from apps.core import clock
from apps.core.units import MB_IN_GB
from apps.policies.budgets import COST_PARTS
from apps.usage.models import PolicyHour, Rate

# Prices have so many parts per unit of the currency.
PRICE_PARTS = 10_000
MILLI_HOUR_MS = 1000 * 3_600_000
HOUR = timedelta(hours=1)
# Any number that nothing else in this database uses.
RATES_LOCK = 7_170_003
# How much of a key is one unit; of all others it is 1.
UNIT = {"memory_mb": MB_IN_GB}

# Pool and model; None and "" stand for all.
Scope = tuple[int | None, str]
# With it a month of 10,000 GPUs is a number that the database can sum up.
MOST_PRICE = 1_000_000


@dataclass(frozen=True, slots=True)
class Rates:
    """All rates: per key and scope, the latest first, as (from, price in `PRICE_PARTS`)."""

    known: Mapping[str, Mapping[Scope, list[tuple[datetime, int]]]]

    @classmethod
    def load(cls) -> Self:
        """In one query."""
        known: dict[str, dict[Scope, list[tuple[datetime, int]]]] = defaultdict(dict)
        rows = Rate.objects.order_by("-valid_from", "-pk")
        for key, pool, model, since, price in rows.values_list(
            "key", "pool_id", "model", "valid_from", "price"
        ):
            known[key].setdefault((pool, model), []).append((since, round(price * PRICE_PARTS)))
        return cls(known)

    def cost(
        self, amounts: Mapping[str, int], ms: int, *, at: datetime, pool: int, model: str
    ) -> int:
        """What thousandths of each key cost for milliseconds of the hour of `at`.

        Returns:
            Millionths of the currency, rounded down.
        """
        total = 0
        for key, amount in amounts.items():
            if price := self._price(key, at, pool, model):
                parts = amount * ms * price * (COST_PARTS // PRICE_PARTS)
                total += parts // (MILLI_HOUR_MS * UNIT.get(key, 1))
        return total

    def _price(self, key: str, at: datetime, pool: int, model: str) -> int:
        scopes: Iterable[Scope] = ((pool, model), (pool, ""), (None, model), (None, ""))
        for scope in scopes:
            for since, price in self.known.get(key, {}).get(scope, ()):
                if since <= at:
                    return price
        return 0


def rates_lock(*, is_shared: bool = False) -> None:
    """Until this transaction ends no rate changes, or (not shared) nothing is summed up by one.

    With SQLite there is one writer at a time.
    """
    if connection.vendor == "postgresql":
        kind = "pg_advisory_xact_lock_shared" if is_shared else "pg_advisory_xact_lock"
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {kind}(%s)", [RATES_LOCK])


def first_unbooked_hour() -> datetime | None:
    """Of which nothing is summed up yet: no rate may begin before; None: any may."""
    # A clock that was ahead leaves hours to come.
    last = (
        PolicyHour.objects.filter(at__lte=clock.now())
        .order_by("-at")
        .values_list("at", flat=True)
        .first()
    )
    return None if last is None else last + HOUR


def is_removable(rate: Rate, unbooked: datetime | None) -> bool:
    """Whether nothing is summed up by it.

    Args:
        unbooked: the `first_unbooked_hour`.
    """
    return unbooked is None or rate.valid_from >= unbooked


def currency() -> str:
    """The one currency of this installation, such as EUR; empty where nothing has a price."""
    return str(settings.RPM_CURRENCY) if Rate.objects.exists() else ""


def cost_of(sum_of_costs: int) -> Decimal:
    """In the currency, with four decimals."""
    return (Decimal(sum_of_costs) / COST_PARTS).quantize(Decimal("0.0001"))
