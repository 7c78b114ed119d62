"""Keeping the secrets of tasks sealed."""

from collections.abc import Mapping

from apps.core.keyring import reseal, seal
from apps.tasks.models import Task

_BATCH = 500


def secrets_sealed(secrets: Mapping[str, str]) -> dict[str, str]:
    """The same names with sealed values, as `Task.secrets` holds them."""
    return {name: seal(value) for name, value in secrets.items()}


def secrets_reseal() -> int:
    """Seal all secrets with the first key of the ring; those that somebody changes meanwhile are.

    Returns:
        How many tasks have secrets.

    Raises:
        KeyMissing: some were sealed with a key that is not in the ring.
    """
    sealed = Task.objects.exclude(secrets={})
    rows = sealed.values_list("pk", "secrets").order_by("pk").iterator(chunk_size=_BATCH)
    count = 0
    for pk, secrets in rows:
        anew = {name: reseal(value) for name, value in secrets.items()}
        Task.objects.filter(pk=pk, secrets=secrets).update(secrets=anew)
        count += 1
    return count
