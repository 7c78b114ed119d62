"""The bytes that a task counts for; pure."""

import msgspec

from apps.tasks.task_spec import TaskSpec

# The smallest task: columns outside the spec, index entries and events.
TASK_BYTES = 1000
# What the column takes.
MOST_BYTES = 2**31 - 1


def spec_bytes(spec: TaskSpec, *, elements: int | None = None) -> int:
    """The bytes that a task with this description counts for; an array with all its elements.

    Args:
        elements: of an array of which only some run again; None: all of its size.
    """
    one = TASK_BYTES + len(msgspec.json.encode(spec))
    if spec.array is None:
        return one
    return min(one * (1 + (spec.array.size if elements is None else elements)), MOST_BYTES)
