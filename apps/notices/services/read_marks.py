"""Marks notices as read."""

from collections.abc import Collection

from django.db import transaction

from apps.accounts.models import User
from apps.core import clock
from apps.core.notifications import after_commit
from apps.notices.models import Notice
from apps.notices.topics import notices_topic


@transaction.atomic
def notices_mark_read(*, user: User, ids: Collection[int] | None = None) -> int:
    """Mark notices of the user as read; returns how many were unread.

    Args:
        ids: None for all; ids of notices that are gone, or another user's, change nothing.
    """
    unread = Notice.objects.filter(user=user, read_at__isnull=True)
    if ids is not None:
        unread = unread.filter(pk__in=ids)
    changed = unread.update(read_at=clock.now())
    if changed:
        after_commit(topics=[notices_topic(user.pk)])
    return changed
