"""Why everything waits after a restore: no pass runs until an administrator confirms it."""

from apps.allocation.explanation.reason_payloads import ReasonPayload
from apps.nodes.models import Installation

CODE = "suspended"
SUSPENDED = ReasonPayload(
    code=CODE,
    sentence="Suspended until confirmed: the database was restored from a backup.",
    help="An administrator looks at the nodes and confirms with `rpmctl confirm-restored`.",
)


def is_suspended() -> bool:
    """Whether scheduling is suspended; what the last pass said counts again afterwards."""
    return Installation.objects.filter(id=1, restored_at__isnull=False).exists()
