"""Secrets of tasks in clear: for nodes and for hiding them, never for pages or answers."""

from apps.core.keyring import unseal
from apps.tasks.models import Task


def task_secrets(task: Task) -> dict[str, str]:
    """The secrets as their owner gave them.

    Raises:
        KeyMissing: they were sealed with a key that is not in the key ring any more.
    """
    return {name: unseal(sealed) for name, sealed in task.secrets.items()}
