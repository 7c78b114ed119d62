"""Nobody is in groups of two tenants: what is told to one must not reach the other by a person."""

from collections.abc import Iterable

from django.db.models import Count

from apps.accounts.models import ADMINS, QUEUE_ADMINS, User
from apps.core.errors import BadInput

MOST_NAMED = 5


def one_tenant_check(user_ids: Iterable[int], *, field: str = "groups") -> None:
    """To be called in the transaction that changed memberships, which a refusal undoes.

    Administrators may be anywhere. Queue administrators see the queues of all, so that nobody of
    a tenant is one.

    Raises:
        BadInput: somebody would be of two tenants, or of one and a queue administrator.
    """
    ids = list(user_ids)
    # Of two changes at once the second waits, and finds what the first one did.
    list(User.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
    people = User.objects.filter(pk__in=ids).exclude(groups__name=ADMINS)
    tenants = Count("groups__belongs__tenant", distinct=True)
    torn = people.annotate(tenants=tenants).filter(tenants__gt=1)
    _refuse(torn.values_list("username", flat=True), "in groups of two tenants", field)
    both = people.filter(groups__name=QUEUE_ADMINS).filter(
        pk__in=User.objects.filter(groups__belongs__isnull=False).values("pk")
    )
    words = f"in {QUEUE_ADMINS}, who see the queues of all, and in a group of a tenant"
    _refuse(both.values_list("username", flat=True), words, field)


def _refuse(names: Iterable[str], words: str, field: str) -> None:
    found = sorted(names)
    if not found:
        return
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    who = f"{', '.join(found[:MOST_NAMED])}{more}"
    problem = f"{who} would be {words}: take them out of one first"
    raise BadInput(f"{problem}.", fields={field: problem})
