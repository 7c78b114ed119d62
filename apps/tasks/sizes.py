"""The bytes that a task counts for; pure."""

import msgspec

from apps.tasks.task_spec import TaskSpec

# The smallest task: columns outside the spec, index entries and events.
TASK_BYTES = 1000
# What the column takes.
MOST_BYTES = 2**31 - 1


def spec_bytes(spec: TaskSpec) -> int:
    """The bytes that a task with this description counts for; an array with all its elements."""
    one = TASK_BYTES + len(msgspec.json.encode(spec))
    return one if spec.array is None else min(one * (1 + spec.array.size), MOST_BYTES)
