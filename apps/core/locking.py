"""Locking in one order, for apps that stand below the one whose rows are locked first.

Who holds what another waits for, and waits for what that one holds, waits for ever. `configuration`
reads and locks people while it holds the live side, and stands above `accounts`; so it says here,
when Django starts, what a change of memberships takes hold of before it touches a person or a
group.
"""

from collections.abc import Callable

Lock = Callable[[], None]
_locks: list[Lock] = []


def outer_lock_set(lock: Lock) -> None:
    """Say what is locked first; what was said before counts no more."""
    _locks[:] = [lock]


def outer_lock() -> None:
    """To be called in a transaction, before anything else in it is locked or changed."""
    for lock in _locks:
        lock()
