"""What passes decided, for administrators: it names the work of all users."""

from datetime import datetime

from django.db.models import QuerySet, Sum

from apps.accounts.selectors import Person, is_admin
from apps.allocation.models import PassRecord
from apps.allocation.scenarios.storage import snapshot_unpack
from apps.core.errors import NotFound


def passes_visible_to(user: Person) -> QuerySet[PassRecord]:
    """The passes that decided something, without their snapshots."""
    if not is_admin(user):
        return PassRecord.objects.none()
    return PassRecord.objects.defer("snapshot")


def decisions_since(moment: datetime) -> dict[str, int]:
    """How many tasks passes placed, preempted, moved and skipped since then; one query."""
    columns = ("placed", "preempted", "moved", "skipped")
    records = PassRecord.objects.filter(at__gte=moment)
    return records.aggregate(**{one: Sum(one, default=0) for one in columns})


def pass_snapshot(pass_id: int) -> str:
    """The input of a pass, as a scenario file.

    Raises:
        NotFound: there is no such pass, or it was too long ago.
    """
    content = PassRecord.objects.filter(pk=pass_id).values_list("snapshot", flat=True).first()
    if content is None:
        raise NotFound("There is no such pass, or its snapshot is not kept any more.")
    return snapshot_unpack(bytes(content))
