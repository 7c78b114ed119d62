"""The groups of a user, as everything else in this app reads them."""

from copy import copy
from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group
from django.db.models import BigIntegerField

from apps.accounts.models import ADMINS, QUEUE_ADMINS, User
from apps.core.statements import Parameter, Statement

# Groups whose permissions drop away while a service account acts.
ADMINISTERING = (ADMINS, QUEUE_ADMINS)


@dataclass(frozen=True, slots=True)
class Membership:
    """A group of a user, the tenant that it belongs to, and the one that it administers."""

    group_id: int
    group: str
    tenant: int | None
    administers: int | None

    @property
    def is_dropped_when_acting(self) -> bool:
        """Whether its permissions fall away while a service account acts."""
        return self.group in ADMINISTERING or self.administers is not None


def memberships(user: AbstractBaseUser | AnonymousUser) -> tuple[Membership, ...]:
    """All groups of an active user; remembered on the object for its request."""
    if not isinstance(user, User) or not user.is_active:
        return ()
    known: tuple[Membership, ...] | None = getattr(user, "_memberships", None)
    if known is None:
        known = _memberships_now(user)
        user._memberships = known  # type: ignore[attr-defined]  # memo on the instance
    return known


def _memberships_now(user: User) -> tuple[Membership, ...]:
    return tuple(Membership(*row) for row in _MEMBERSHIPS.rows(user=user.pk))


def with_groups_of_now(user: User, *, is_administering: bool = True) -> User:
    """A copy of the user with the groups of this moment, for checks under a lock.

    Everything that `apps.accounts.selectors` says of the copy's groups comes from this one read.

    Args:
        is_administering: False: the copy administers nothing, as while a service account acts.
    """
    found = copy(user)
    if not is_administering:
        found.acted_by_id = user.acted_by_id or user.pk
    known = _memberships_now(user) if user.is_active else ()
    found._memberships = known  # type: ignore[attr-defined]  # memo on the instance
    acted = found.acted_by_id is not None
    found._groups = {  # type: ignore[attr-defined]  # memo on the instance
        one.group_id: one.group for one in known if not (acted and one.is_dropped_when_acting)
    }
    return found


_MEMBERSHIPS = Statement(
    lambda: (
        Group.objects.filter(user=Parameter("user", BigIntegerField()))
        .order_by()
        .values_list("id", "name", "belongs__tenant", "administers")
    )
)
