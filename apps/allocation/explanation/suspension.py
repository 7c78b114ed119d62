"""Why everything waits after a restore: no pass runs until an administrator confirms it."""

from apps.allocation.explanation.reason_payloads import ReasonPayload

CODE = "suspended"
SUSPENDED = ReasonPayload(
    code=CODE,
    sentence="Suspended until confirmed: the database was restored from a backup.",
    help="An administrator looks at the nodes and confirms with `rpmctl confirm-restored`.",
)
