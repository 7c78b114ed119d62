"""Keeping the secrets of tasks sealed."""

from collections.abc import Mapping

from apps.core.keyring import seal
from apps.core.resealing import Resealing
from apps.tasks.models import Task

_BATCH = 500


def secrets_sealed(secrets: Mapping[str, str], task: Task) -> dict[str, str]:
    """The same names with values that are sealed for this task, as `Task.secrets` holds them.

    Args:
        task: stored or not; its id and its owner are those that it keeps.
    """
    return {name: seal(value, context=task.secret_context(name)) for name, value in secrets.items()}


def with_secrets(task: Task, secrets: Mapping[str, str]) -> Task:
    """The task with these secrets; its id is there before it is stored."""
    task.secrets = secrets_sealed(secrets, task)
    return task


def secrets_reseal(resealing: Resealing) -> int:
    """Seal all secrets again; those that somebody changes meanwhile are sealed with the first key.

    Returns:
        How many tasks have secrets.
    """
    sealed = Task.objects.exclude(secrets={}).only("owner_id", "secrets").order_by("pk")
    count = 0
    for task in sealed.iterator(chunk_size=_BATCH):
        found = {
            name: resealing.value(value, task.secret_context(name))
            for name, value in task.secrets.items()
        }
        if found != task.secrets:
            Task.objects.filter(pk=task.pk, secrets=task.secrets).update(secrets=found)
        count += 1
    return count
