"""The entries with which services record what they did."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class NewEvent:
    """One thing that happened, before it is stored.

    `data` may hold the object's `name`, a `reason`, `others` that it concerned ({"type", "id",
    "name"} each), and what was `before` and is `after`; never a secret. `is_audited`: a user
    answers for it, so the audit log has it, too. The plain life of a task is not audited.
    """

    kind: str
    object_type: str
    object_id: object
    queue_id: int | None = None
    policy_id: int | None = None
    actor_id: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    acted_by_id: int | None = None
    is_audited: bool = False
