"""How much of their GPUs policies used lately."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Sum

from apps.core import clock
from apps.policies.models import Policy
from apps.usage.models import PolicyHour, UseThreshold
from apps.usage.selectors.bookings import hour_of
from apps.usage.selectors.idle_attempts import idle_gpu_by_policy
from apps.usage.selectors.usage_history import HOUR


@dataclass(frozen=True, slots=True)
class PolicyGpuUse:
    """`percent`: the mean utilisation of its GPUs in this hour and the one before, as far as it is
    summed up; None where it is not known. `idle`: thousandths of GPU that idle tasks hold now.
    """

    percent: int | None
    idle: int


def policy_use(
    policies: Collection[int], *, now: datetime | None = None
) -> Mapping[int, PolicyGpuUse]:
    """Of each policy with those below it, in three queries."""
    parents = dict(Policy.objects.filter(removed_at__isnull=True).values_list("pk", "parent_id"))
    since = hour_of(now or clock.now()) - HOUR
    hours = PolicyHour.objects.filter(at__gte=since, known__gt=0).order_by().values_list("policy")
    sums = {pk: (used, known, 0) for pk, used, known in hours.annotate(Sum("used"), Sum("known"))}
    own = [*sums.items(), *((pk, (0, 0, gpu)) for pk, gpu in idle_gpu_by_policy().items())]
    found = dict.fromkeys(policies, (0, 0, 0))
    for pk, (used, known, idle) in own:
        at: int | None = pk
        while at is not None:
            if at in found:
                a, b, c = found[at]
                found[at] = (a + used, b + known, c + idle)
            at = parents.get(at)
    return {
        pk: PolicyGpuUse(round(100 * used / known) if known else None, idle)
        for pk, (used, known, idle) in found.items()
    }


def use_threshold() -> int | None:
    """Policies with a lower GPU use, in percent, are marked; None: no policy."""
    return UseThreshold.objects.values_list("gpu_percent", flat=True).first()
