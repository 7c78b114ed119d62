"""One lock order, for apps that may not import the app whose rows are locked first.

Two transactions that lock the same rows in different orders deadlock. `configuration` locks users
while it holds the live revision, and imports `accounts`; so it registers here, when Django starts,
what a change of memberships locks before it touches a user or a group.
"""

from collections.abc import Callable

Lock = Callable[[], None]
_locks: list[Lock] = []


def live_configuration_lock_register(lock: Lock) -> None:
    """Register what is locked first, in place of an earlier registration."""
    _locks[:] = [lock]


def live_configuration_lock() -> None:
    """To be called in a transaction, before anything else in it is locked or changed."""
    for lock in _locks:
        lock()
