"""Secrets of tasks in clear: for nodes and for hiding them, never for pages or answers."""

from contextlib import suppress
from functools import lru_cache
from uuid import UUID

from apps.core.keyring import KeyMissing, unseal
from apps.tasks.masking import needles_of
from apps.tasks.models import Attempt, Task
from apps.tasks.redaction import is_secret


def task_secrets(task: Task) -> dict[str, str]:
    """The secrets as their owner gave them.

    Raises:
        KeyMissing: they were sealed with a key that is not in the key ring any more.
    """
    return {name: unseal(sealed) for name, sealed in task.secrets.items()}


@lru_cache(maxsize=1024)
def hidden_in_log(attempt_id: UUID, own: tuple[str, ...]) -> tuple[bytes, ...]:
    """What is masked in the log of an attempt; a task that has attempts does not change it.

    Args:
        own: patterns of the task's owner, who may change them at any time.

    Secrets whose key is not here any more cannot be known: those are left out.
    """
    task = Task.objects.only("environment", "secrets").get(
        pk__in=Attempt.objects.filter(pk=attempt_id).values("task_id")
    )
    variables = [value for name, value in task.environment.items() if is_secret(name, own)]
    secrets: dict[str, str] = {}
    with suppress(KeyMissing):
        secrets = task_secrets(task)
    return needles_of([*secrets.values(), *variables])
