"""How many bytes of the database a task counts for; pure."""

import msgspec

from apps.tasks.descriptions import Description

# The columns that are no description, index entries, events: what the smallest task takes.
TASK_BYTES = 1000


def description_bytes(description: Description) -> int:
    """What a task with this description counts for."""
    return TASK_BYTES + len(msgspec.json.encode(description))
