"""When a user was last active, and that an invited user came."""

from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import Invitation, User

# For people to read: one write per person and minute is enough.
LAST_ACTIVE_EVERY = timedelta(minutes=1)


def person_activity_note(*, user: User) -> None:
    """Note that the person is here, at most once a minute."""
    now = timezone.now()
    if user.last_active_at is not None and user.last_active_at > now - LAST_ACTIVE_EVERY:
        return
    late = Q(last_active_at__isnull=True) | Q(last_active_at__lte=now - LAST_ACTIVE_EVERY)
    User.objects.filter(late, pk=user.pk).update(last_active_at=now)
    user.last_active_at = now


def person_sign_in_note(*, user: User, **_: Any) -> None:
    """Note a sign-in, whatever its method: an invited user has come, and the link is spent."""
    now = timezone.now()
    User.objects.filter(pk=user.pk).update(last_active_at=now, is_pending=False)
    user.last_active_at = now
    if user.is_pending:
        user.is_pending = False
        Invitation.objects.filter(user=user).delete()
