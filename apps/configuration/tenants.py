"""The facts in a list of tenants: top, administrators, and how much each has."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import Group
from django.db.models import Count

from apps.accounts.models import Tenant, TenantGroup, User
from apps.policies.models import Policy


@dataclass(frozen=True, slots=True)
class TenantFacts:
    """`top` is None only where rows were changed by hand; counts are of what is live."""

    tenant: Tenant
    top: Policy | None
    groups: tuple[Group, ...]
    policies: int
    people: int

    @property
    def name(self) -> str:
        """The name of its top policy."""
        return self.top.name if self.top is not None else str(self.tenant)


def tenant_facts(tenants: Iterable[Tenant]) -> list[TenantFacts]:
    """The facts of these tenants, by name, in four queries."""
    every = list(tenants)
    live = Policy.objects.filter(tenant__in=every, removed_at__isnull=True)
    tops = {policy.tenant_id: policy for policy in live.filter(parent=None)}
    policies = Counter(live.values_list("tenant", flat=True))
    groups: dict[int, list[Group]] = defaultdict(list)
    rows = TenantGroup.objects.filter(tenant__in=every).select_related("group")
    for row in rows.order_by("group__name", "pk"):
        groups[row.tenant_id].append(row.group)
    people = dict(
        User.objects.filter(groups__belongs__tenant__in=every)
        .order_by()
        .values_list("groups__belongs__tenant")
        .annotate(Count("pk", distinct=True))
    )
    found = [
        TenantFacts(
            tenant=one,
            top=tops.get(one.pk),
            groups=tuple(groups[one.pk]),
            policies=policies[one.pk],
            people=people.get(one.pk, 0),
        )
        for one in every
    ]
    return sorted(found, key=lambda one: (one.name.casefold(), one.tenant.pk))
