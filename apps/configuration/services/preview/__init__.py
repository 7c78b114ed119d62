"""What provisioning the draft, or saving a policy, would do; nothing of it is kept."""

from apps.configuration.services.preview.returned import (
    tasks_returned_by_change,
    tasks_returned_by_narrowing,
)
from apps.configuration.services.preview.told import Preview
from apps.configuration.services.preview.trying import (
    draft_preview,
    policy_change_preview,
    policy_create_preview,
)

__all__ = [
    "Preview",
    "draft_preview",
    "policy_change_preview",
    "policy_create_preview",
    "tasks_returned_by_change",
    "tasks_returned_by_narrowing",
]
