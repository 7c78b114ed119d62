"""Secrets of tasks in clear: for nodes and log masks, never for pages or responses."""

from contextlib import suppress

from apps.core.keyring import CannotUnseal, unseal
from apps.tasks.models import Task


def task_secrets(task: Task) -> dict[str, str]:
    """The secrets as their owner gave them.

    Raises:
        CannotUnseal: one was sealed with a key that is gone, or for another task.
    """
    return {
        name: unseal(sealed, context=task.secret_context(name))
        for name, sealed in task.secrets.items()
    }


def readable_secrets(task: Task) -> list[str]:
    """Their values, without those that cannot be opened."""
    found = []
    for name, sealed in task.secrets.items():
        with suppress(CannotUnseal):
            found.append(unseal(sealed, context=task.secret_context(name)))
    return found
