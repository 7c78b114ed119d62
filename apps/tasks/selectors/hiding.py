"""What is masked in the output of tasks."""

from apps.tasks.masking import needles_of
from apps.tasks.models import Attempt
from apps.tasks.selectors.vaults import hidden_values, used_of


def hidden_in_log(attempt: Attempt) -> tuple[bytes, ...]:
    """What is masked in the log of an attempt; opened for each piece, and never kept.

    Secrets whose key is not here any more cannot be known: those are left out.
    """
    own = attempt.task.owner.redacted_variables
    return needles_of(hidden_values(attempt.task, used_of(attempt.vaults), own))
