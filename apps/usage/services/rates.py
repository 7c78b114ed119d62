"""Changes what resources cost. What is summed up keeps the rates that it was summed up by."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core import clock
from apps.core.errors import BadInput, Conflict
from apps.core.units import BUILT_IN_KEYS
from apps.events.services import event_record
from apps.nodes.models import Node
from apps.policies.models import Pool
from apps.usage.models import Rate
from apps.usage.selectors.bookings import hour_of
from apps.usage.selectors.rates import MOST_PRICE, first_unbooked_hour, is_removable, rates_lock

# In a year; more would make every booking slow.
MOST_RATES, YEAR = 1000, timedelta(days=365)


@transaction.atomic
def rate_create(
    *,
    actor: User | None,
    price: Decimal,
    valid_from: datetime,
    pool: Pool | None = None,
    model: str = "",
    key: str = "gpu",
) -> Rate:
    """Let a resource cost this from a full hour on.

    Raises:
        BadInput: naming `price`, `valid_from`, `key` or `model`.
        Conflict: there are too many rates.
    """
    rates_lock()
    valid_from = valid_from.astimezone(UTC)
    earliest = first_unbooked_hour()
    if not 0 <= price <= MOST_PRICE:
        raise _bad_input("price", f"must be 0 to {MOST_PRICE:,}")
    if valid_from != hour_of(valid_from):
        raise _bad_input("valid_from", "must be a full hour, in UTC")
    if earliest is not None and valid_from < earliest:
        words = f"usage before {earliest:%Y-%m-%d %H:%M} UTC is summed up already"
        raise _bad_input("valid_from", f"{words}: choose that hour or a later one")
    known = set(BUILT_IN_KEYS).union(*(one.capacity for one in Pool.objects.all()))
    if key not in known:
        raise _bad_input("key", f"must be one of {', '.join(sorted(known))}")
    _check_model(pool, model)
    if Rate.objects.filter(valid_from=valid_from, pool=pool, model=model, key=key).exists():
        raise _bad_input("valid_from", "there is a rate from this hour on already: remove it first")
    if Rate.objects.filter(created_at__gte=clock.now() - YEAR).count() >= MOST_RATES:
        raise Conflict(f"{MOST_RATES} rates were created within a year: no more can be added.")
    rate = Rate.objects.create(pool=pool, model=model, key=key, price=price, valid_from=valid_from)
    _record("rate.created", actor, rate, before={}, after=_facts(rate))
    return rate


@transaction.atomic
def rate_remove(*, actor: User | None, rate: Rate) -> None:
    """Remove a rate that nothing was summed up by.

    Raises:
        Conflict: usage is summed up by it.
    """
    rates_lock()
    if not is_removable(rate, first_unbooked_hour()):
        raise Conflict("Usage is summed up by this rate: create one from a later hour on.")
    _record("rate.removed", actor, rate, before=_facts(rate), after={})
    rate.delete()


def _check_model(pool: Pool | None, model: str) -> None:
    """A model that no node of the pool has is a mistake, unless the pool has no GPUs yet."""
    nodes = Node.objects.filter(pool=pool, removed_at__isnull=True).exclude(gpu_model="")
    known = sorted(set(nodes.values_list("gpu_model", flat=True))) if pool and model else []
    if known and model not in known:
        raise _bad_input("model", f"the nodes of {pool} have {', '.join(known)}")


def _facts(rate: Rate) -> dict[str, Any]:
    return {
        "pool": rate.pool.name if rate.pool else None,
        "model": rate.model,
        "key": rate.key,
        "price": str(rate.price),
        "valid_from": rate.valid_from.isoformat(),
    }


def _record(
    kind: str, actor: User | None, rate: Rate, *, before: dict[str, Any], after: dict[str, Any]
) -> None:
    facts = before or after
    name = f"{facts['price']} per {facts['key']} and hour"
    data = {"name": name, "before": before, "after": after}
    event_record(kind, actor=actor, object_type="rate", object_id=rate.pk, data=data)


def _bad_input(field: str, problem: str) -> BadInput:
    return BadInput(f"{field}: {problem}.", fields={field: problem})
