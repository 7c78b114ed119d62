"""Sealing of the secrets of tasks."""

from collections.abc import Mapping

from apps.core.keyring import seal
from apps.core.resealer import Resealer
from apps.tasks.models import Task

_BATCH = 500


def seal_secrets(secrets: Mapping[str, str], task: Task) -> dict[str, str]:
    """The names with values sealed for this task, as `Task.secrets` holds them.

    Args:
        task: stored or not; its id and owner must be final.
    """
    return {name: seal(value, context=task.secret_context(name)) for name, value in secrets.items()}


def with_secrets(task: Task, secrets: Mapping[str, str]) -> Task:
    """The task with these secrets; it has its id before it is stored."""
    task.secrets = seal_secrets(secrets, task)
    return task


def secrets_reseal(resealer: Resealer) -> int:
    """Seal all secrets again; concurrent changes are sealed with the first key anyway.

    Returns:
        How many tasks have secrets.
    """
    sealed = Task.objects.exclude(secrets={}).only("owner_id", "array_id", "secrets").order_by("pk")
    count = 0
    for task in sealed.iterator(chunk_size=_BATCH):
        found = {
            name: resealer.value(value, task.secret_context(name))
            for name, value in task.secrets.items()
        }
        if found != task.secrets:
            Task.objects.filter(pk=task.pk, secrets=task.secrets).update(secrets=found)
        count += 1
    return count
