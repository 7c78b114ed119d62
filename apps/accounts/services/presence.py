"""When somebody was last here, and that an invited person came."""

from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import Invitation, User

# A hint for people: one write per person and minute is enough.
LAST_ACTIVE_EVERY = timedelta(minutes=1)


def person_seen(*, user: User) -> None:
    """Note that the person is here, at most once a minute."""
    now = timezone.now()
    if user.last_active_at is not None and user.last_active_at > now - LAST_ACTIVE_EVERY:
        return
    late = Q(last_active_at__isnull=True) | Q(last_active_at__lte=now - LAST_ACTIVE_EVERY)
    User.objects.filter(late, pk=user.pk).update(last_active_at=now)
    user.last_active_at = now


def person_came(*, user: User, **_: Any) -> None:
    """Somebody signed in, by whatever way: whoever was invited has come, and the link is spent."""
    now = timezone.now()
    User.objects.filter(pk=user.pk).update(last_active_at=now, is_pending=False)
    user.last_active_at = now
    if user.is_pending:
        user.is_pending = False
        Invitation.objects.filter(user=user).delete()
