"""Why tasks wait, in the words that a reader may read: the same for REST and pages."""

from apps.allocation.explanation.names import ReaderNames
from apps.allocation.explanation.reason_payloads import (
    ReasonPayload,
    reason_payload,
    reason_payloads,
)
from apps.allocation.explanation.start_estimates import (
    ExpectedStart,
    expected_start,
    expected_start_of_new,
    kept_starts,
)
from apps.allocation.explanation.suspension import SUSPENDED
from apps.allocation.explanation.task_explanations import (
    PastReason,
    TaskExplanation,
    explain_task,
    past_reasons,
    queue_of,
    reasons_now,
)

__all__ = [
    "SUSPENDED",
    "ExpectedStart",
    "PastReason",
    "ReaderNames",
    "ReasonPayload",
    "TaskExplanation",
    "expected_start",
    "expected_start_of_new",
    "explain_task",
    "kept_starts",
    "past_reasons",
    "queue_of",
    "reason_payload",
    "reason_payloads",
    "reasons_now",
]
