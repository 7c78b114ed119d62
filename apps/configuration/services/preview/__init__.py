"""Previews of provisioning the draft or saving a policy; nothing is kept."""

from apps.configuration.services.preview.dry_run import (
    change_preview,
    draft_preview,
    policy_change_preview,
    policy_create_preview,
)
from apps.configuration.services.preview.report import Preview
from apps.configuration.services.preview.returned_tasks import (
    tasks_returned_by_change,
    tasks_returned_by_restriction,
)

__all__ = [
    "Preview",
    "change_preview",
    "draft_preview",
    "policy_change_preview",
    "policy_create_preview",
    "tasks_returned_by_change",
    "tasks_returned_by_restriction",
]
