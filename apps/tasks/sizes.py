"""The bytes that a task counts for; pure."""

import msgspec

from apps.tasks.descriptions import Description

# The smallest task: columns outside the description, index entries and events.
TASK_BYTES = 1000


def description_bytes(description: Description) -> int:
    """The bytes that a task with this description counts for."""
    return TASK_BYTES + len(msgspec.json.encode(description))
