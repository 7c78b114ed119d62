"""The bytes that a task counts for; pure."""

import msgspec

from apps.tasks.task_spec import TaskSpec

# The smallest task: columns outside the spec, index entries and events.
TASK_BYTES = 1000


def spec_bytes(spec: TaskSpec) -> int:
    """The bytes that a task with this description counts for."""
    return TASK_BYTES + len(msgspec.json.encode(spec))
