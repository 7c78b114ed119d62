"""What is masked in the output of tasks."""

from functools import lru_cache
from uuid import UUID

from apps.tasks.masking import needles_of
from apps.tasks.models import Attempt
from apps.tasks.selectors.vaults import hidden_values, used_of


@lru_cache(maxsize=1024)
def hidden_in_log(attempt_id: UUID, own: tuple[str, ...]) -> tuple[bytes, ...]:
    """What is masked in the log of an attempt; a task that has attempts does not change it.

    Args:
        own: patterns of the task's owner, who may change them at any time.

    Secrets whose key is not here any more cannot be known: those are left out.
    """
    attempt = Attempt.objects.select_related("task").get(pk=attempt_id)
    return needles_of(hidden_values(attempt.task, used_of(attempt.vaults), own))
