"""Database connections of threads that work now and then."""

from django.db import connections


def connections_release() -> None:
    """Give back what this thread holds, so that a pool serves many threads.

    A connection to SQLite stays open: opening one takes longer than most of what is asked, and
    no other thread waits for it.
    """
    for one in connections.all(initialized_only=True):
        if one.vendor != "sqlite" or one.errors_occurred:
            one.close()
