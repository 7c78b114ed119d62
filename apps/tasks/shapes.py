"""The shape that makes tasks of a queue equal for the engine."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class TaskShape:
    """The shape of a task; `request` and `replicas` None mean the live ones of the profile."""

    request: Mapping[str, str] | None = None
    replicas: int | None = None
    priority: int = 0
    is_preemptible: bool = True
    user_id: int | None = None
    exceeds_limit: bool = False

    def digest(self) -> str:
        """64 hex digits, equal for equal shapes; amounts are compared as typed."""
        facts = (
            sorted(self.request.items()) if self.request is not None else None,
            self.replicas,
            self.priority,
            self.is_preemptible,
            self.user_id,
            self.exceeds_limit,
        )
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()
