"""Withdrawal of an admission before its launch has begun."""

from uuid import UUID

from django.db import transaction

from apps.tasks.models import Attempt
from apps.tasks.services.attempts import attempt_end_unstarted, attempt_stop
from apps.tasks.states import AttemptState, TaskState


def attempt_withdraw(*, attempt_id: UUID, detail: str) -> bool:
    """Put the task back into its queue, with its old time of submission.

    Returns:
        False where a launch has begun: from then on only the node knows its state.
    """
    with transaction.atomic():
        attempt = Attempt.objects.select_for_update(no_key=True).get(pk=attempt_id)
        if attempt.state != AttemptState.ALLOCATED:
            return False
        attempt_stop(attempt_id=attempt_id, target=TaskState.QUEUED, detail=detail)
        return attempt_end_unstarted(attempt_id=attempt_id)
