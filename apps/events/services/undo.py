"""Makes sure that an undo ends only what it names."""

from uuid import UUID

from apps.core.errors import Stale
from apps.events.models import Event

WORDS = {"draining": "drained"}
BY_NOBODY = "RPM"


def undo_check(undoes: int | None, *, object_type: str, object_id: int | UUID, name: str) -> None:
    """Refuse an undo of something that was done again meanwhile.

    Call it in the transaction that undoes, once the object is locked.

    Args:
        undoes: id of the event to undo; None for a change that undoes no particular one.
        name: what the sentence calls the object.

    Raises:
        Stale: the same was done again, or the event is not one of this object.
    """
    if undoes is None:
        return
    events = Event.objects.filter(object_type=object_type, object_id=str(object_id))
    event = events.filter(pk=undoes).first()
    if event is None:
        raise Stale(f"{name}: this can no longer be undone. Nothing was undone.")
    again = events.filter(pk__gt=undoes, kind=event.kind).select_related("actor").first()
    if again is not None:
        verb = event.kind.partition(".")[2]
        raise Stale(
            f"{name} was {WORDS.get(verb, verb)} again meanwhile by {again.actor or BY_NOBODY}. "
            "Nothing was undone."
        )
