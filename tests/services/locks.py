"""Locks of the PostgreSQL database of the test."""

from django.db import connection


def waiting_for_locks() -> int:
    """How many connections to this database wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM"
            " pg_locks JOIN pg_database ON pg_database.oid = database WHERE datname ="
            " current_database())"
        )
        count: int = cursor.fetchone()[0]
    return count
