"""The secrets that are masked in the output of tasks."""

from apps.tasks.log_masks import needles_of
from apps.tasks.models import Attempt
from apps.tasks.selectors.vaults import hidden_values, vault_refs_of


def log_needles(attempt: Attempt) -> tuple[bytes, ...]:
    """The secrets to mask in the log of an attempt; opened for each piece, and never kept.

    Secrets whose key is gone cannot be opened and are left out.
    """
    own = attempt.task.owner.redacted_variables
    return needles_of(hidden_values(attempt.task, vault_refs_of(attempt.vaults), own))
