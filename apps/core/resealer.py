"""Seals values of the database again: with a new key, or those of an earlier version."""

from pathlib import Path

from django.conf import settings

from apps.core.keyring import CannotUnseal, SealContext, bind, is_earlier_form, reseal


class Resealer:
    """Seals values again and counts those that cannot be read, which stay as they are.

    Args:
        binds: seal what an earlier version has sealed for the place in which it is now, and leave
            the rest. Else everything is sealed with the first key, and the earlier form is none
            that can be read.
    """

    def __init__(self, *, binds: bool = False) -> None:
        self._binds = binds
        self.changed = 0
        self.problems: list[str] = []

    def value(self, sealed: str, context: SealContext) -> str:
        """The value to store in place of this one."""
        if not sealed or (self._binds and not is_earlier_form(sealed)):
            return sealed
        try:
            found = (bind if self._binds else reseal)(sealed, context=context)
        except CannotUnseal as error:
            row = "/".join(map(str, context.row))
            self.problems.append(f"{row}: {error.detail}" if row else error.detail)
            return sealed
        self.changed += 1
        return found


def is_bound() -> bool:
    """Whether values of the earlier form were bound here, and are no longer accepted."""
    return _mark().exists()


def bound_note(*, is_done: bool) -> None:
    """Remember it in a file next to the key ring.

    Not in the database: with write access there, old values could be put back and bound again.
    """
    if is_done:
        _mark().touch(mode=0o600)
    else:
        _mark().unlink(missing_ok=True)


def _mark() -> Path:
    path: Path = settings.RPM_KEY_RING_FILE
    return path.with_name("seals-bound")
