"""Keeps the newest revisions of each author.

Each revision holds the whole configuration. They are counted by author, so that frequent changes
of one, such as an administrator of a tenant, remove no revisions of others.
"""

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from apps.configuration.models import Revision
from apps.policies.models import DraftState

AT_ONCE = 200


def revisions_remove_old(*, most: int) -> int:
    """Remove those beyond the newest `most` of their author; 0 keeps all.

    The one that the draft came from stays.

    Returns:
        How many were removed, at most 200.
    """
    if not most:
        return 0
    newest_first = Window(RowNumber(), partition_by=F("author"), order_by=F("number").desc())
    ranked = Revision.objects.annotate(place=newest_first).filter(place__gt=most)
    base = DraftState.objects.values_list("base_revision", flat=True)
    old = ranked.exclude(number__in=list(base)).order_by("number")
    numbers = list(old.values_list("number", flat=True)[:AT_ONCE])
    return Revision.objects.filter(number__in=numbers).delete()[0]
