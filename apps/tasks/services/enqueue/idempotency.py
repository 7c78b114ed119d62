"""A user's own key for one request: same key and body, same task."""

import hashlib
import uuid
from dataclasses import dataclass

from django.utils import timezone

from apps.core.errors import BadInput, Conflict
from apps.tasks.models import IdempotencyKey, Task

KEY_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The key that came with a request, and a hash of its body."""

    key: str
    body_hash: str


def idempotency_of(key: str, body: bytes) -> Idempotency | None:
    """None where the request has no key.

    Raises:
        BadInput: the key is too long or cannot be printed.
    """
    if not key:
        return None
    if len(key) > KEY_LENGTH or not key.isprintable():
        problem = f"must have 1 to {KEY_LENGTH} printable characters"
        raise BadInput(f"Idempotency-Key {problem}.", fields={"Idempotency-Key": problem})
    return Idempotency(key, hashlib.sha256(body).hexdigest())


def earlier_task(owner_id: int, given: Idempotency | None) -> Task | None:
    """The task that the same request created before.

    Raises:
        Conflict: the key was used with another body.
    """
    if given is None:
        return None
    row = IdempotencyKey.objects.filter(user_id=owner_id, key=given.key).first()
    if row is None:
        return None
    if row.body_hash != given.body_hash:
        problem = "was used with another body: choose a new one"
        raise Conflict(f"This Idempotency-Key {problem}.", fields={"Idempotency-Key": problem})
    return Task.objects.get(pk=row.task_id)


def key_keep(owner_id: int, given: Idempotency | None, task_id: uuid.UUID) -> None:
    """Store the key in the transaction that stores the task.

    Raises:
        IntegrityError: the same request was faster; this one must be rolled back.
    """
    if given is None:
        return
    IdempotencyKey.objects.create(
        user_id=owner_id,
        key=given.key,
        body_hash=given.body_hash,
        task_id=task_id,
        created_at=timezone.now(),
    )
